module examples

go 1.19

require libblend v0.1.0
