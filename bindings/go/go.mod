module libblend

go 1.19
