blend_test(store_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_test.cpp)
blend_test(codec_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/codec_test.cpp)
# Links LMDB itself, to change files as another program would.
blend_test(store_damage_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_damage_test.cpp
           LIBS PkgConfig::lmdb)
blend_test(store_queue_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/store_queue_test.cpp)
include(${CMAKE_CURRENT_LIST_DIR}/../crash/crash.cmake)
