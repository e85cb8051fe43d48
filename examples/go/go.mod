module examples

go 1.19

require libblend.io/go v0.1.0
