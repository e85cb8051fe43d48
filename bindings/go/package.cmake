# What users need of the module: no tests, which want the repository, and no program that measures it.
get_filename_component(name ${OUT} NAME)
get_filename_component(folder ${OUT} DIRECTORY)
file(REMOVE_RECURSE ${OUT})
file(COPY ${MODULE}/ DESTINATION ${OUT} PATTERN "*_test.go" EXCLUDE PATTERN fusecall EXCLUDE)
execute_process(COMMAND ${CMAKE_COMMAND} -E tar cf ${name}.zip --format=zip ${name}
                WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
