# Third-party libraries; docs/architecture.md gives each one's reason.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # SHA-256
find_package(OpenSSL QUIET OPTIONAL_COMPONENTS SSL)  # TLS, in a library of its own
find_package(nlohmann_json REQUIRED)  # files of Hugging Face models
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)     # SIMD with run-time dispatch
pkg_check_modules(lmdb REQUIRED IMPORTED_TARGET lmdb)      # the chunk store
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)  # checksums
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)  # reads past the page cache
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)   # pre-tokenizers
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)  # Unicode normal forms
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)   # the lossless codec

add_library(blend_dependencies INTERFACE)
target_link_libraries(blend_dependencies INTERFACE
  OpenSSL::Crypto PkgConfig::hwy PkgConfig::lmdb PkgConfig::xxhash
  PkgConfig::uring PkgConfig::zstd PkgConfig::pcre2 PkgConfig::utf8proc
  nlohmann_json::nlohmann_json)
