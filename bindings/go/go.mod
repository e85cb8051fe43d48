module libblend.io/go

go 1.19
