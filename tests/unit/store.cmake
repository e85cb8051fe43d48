blend_test(store_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_test.cpp)
blend_test(codec_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/codec_test.cpp)
# Links LMDB itself, to change files as another program would.
blend_test(store_damage_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_damage_test.cpp
           LIBS PkgConfig::lmdb)
blend_test(store_evict_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_evict_test.cpp
           LIBS PkgConfig::lmdb)
blend_test(store_care_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_care_test.cpp)
blend_test(store_hint_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_hint_test.cpp)
blend_test(store_put_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_put_test.cpp
           LIBS PkgConfig::lmdb)
blend_test(store_queue_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_queue_test.cpp)
include(${CMAKE_CURRENT_LIST_DIR}/../crash/crash.cmake)
blend_test(store_read_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_read_test.cpp)

# Committed stores, good and damaged; the program writes them anew for a new format version.
set(golden_store ${CMAKE_CURRENT_LIST_DIR}/../golden-store)
blend_test(store_golden_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_golden_test.cpp
           LIBS PkgConfig::zstd)
target_compile_definitions(store_golden_test PRIVATE BLEND_GOLDEN_STORE_DIR="${golden_store}")
target_include_directories(store_golden_test PRIVATE ${CMAKE_CURRENT_LIST_DIR})
add_executable(make_golden_store ${golden_store}/make_golden_store.cpp)
target_link_libraries(make_golden_store PRIVATE blend_core blend_test_support GTest::gtest
                      PkgConfig::zstd)
target_include_directories(make_golden_store PRIVATE ${CMAKE_CURRENT_LIST_DIR})
blend_warnings(make_golden_store)
