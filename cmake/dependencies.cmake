# Third-party libraries; docs/architecture.md gives each one's reason.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # SHA-256
find_package(OpenSSL QUIET OPTIONAL_COMPONENTS SSL)  # TLS, in a library of its own
find_package(nlohmann_json REQUIRED)  # files of Hugging Face models
find_package(PkgConfig REQUIRED)

option(BLEND_STATIC_DEPENDENCIES "Link the libraries below, and C++'s, into libblend.so: it then needs \
the C library alone" OFF)
set(BLEND_STATIC_LIBRARIES "" CACHE PATH "Folder of libraries that are not fit for it as the system has \
them (scripts/package_libraries)")

add_library(blend_dependencies INTERFACE)
target_link_libraries(blend_dependencies INTERFACE nlohmann_json::nlohmann_json)

# Position-independent, hidden by blend.map: they never clash with a host's own copy.
function(blend_archive name)
  find_library(BLEND_ARCHIVE_${name} lib${name}.a HINTS ${BLEND_STATIC_LIBRARIES} NO_CACHE)
  if(NOT BLEND_ARCHIVE_${name})
    message(FATAL_ERROR "BLEND_STATIC_DEPENDENCIES is ON, and lib${name}.a is not here: "
            "scripts/package_libraries FOLDER makes what the system lacks, "
            "-DBLEND_STATIC_LIBRARIES=FOLDER names it")
  endif()
  target_link_libraries(blend_dependencies INTERFACE ${BLEND_ARCHIVE_${name}})
  set_property(GLOBAL APPEND PROPERTY BLEND_ARCHIVES ${BLEND_ARCHIVE_${name}})
endfunction()

# blend_dependency(package library): as pkg-config knows it, and -lNAME.
function(blend_dependency package library)
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET ${package})
  if(BLEND_STATIC_DEPENDENCIES)
    blend_archive(${library})
    target_include_directories(blend_dependencies SYSTEM INTERFACE ${${library}_INCLUDE_DIRS})
  else()
    target_link_libraries(blend_dependencies INTERFACE PkgConfig::${library})
  endif()
endfunction()

blend_dependency(libhwy hwy)              # SIMD with run-time dispatch
blend_dependency(lmdb lmdb)               # the chunk store
blend_dependency(libxxhash xxhash)        # checksums
blend_dependency(liburing uring)          # reads past the page cache
blend_dependency(libpcre2-8 pcre2-8)      # pre-tokenizers
blend_dependency(libutf8proc utf8proc)    # Unicode normal forms
blend_dependency(libzstd zstd)            # the lossless codec
if(BLEND_STATIC_DEPENDENCIES)
  if(BLEND_STATIC_LIBRARIES)
    # The headers of what is linked, before the system's.
    target_include_directories(blend_dependencies SYSTEM BEFORE INTERFACE ${BLEND_STATIC_LIBRARIES}/include)
  endif()
  if(BLEND_REMOTE)
    blend_archive(ssl)  # only libblend_tls.so uses it
  endif()
  blend_archive(crypto)
  # Unused parts of C++'s library are dropped, and with them their need of the C library's newest
  # functions. The unwinder (libgcc_s) is shared by every C++ process.
  add_link_options(-static-libstdc++ -Wl,--gc-sections)
else()
  target_link_libraries(blend_dependencies INTERFACE OpenSSL::Crypto)
endif()
