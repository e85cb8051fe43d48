# What tests on real weights take: folders that are not in the repository. Tests of what is not there are skipped.
#
# BLEND_DATA_DIR, to begin with that of the environment: models/stories260K.gguf, golden/fusion-stories260K.json
# and real-models/.
set(BLEND_DATA_DIR "$ENV{BLEND_DATA_DIR}" CACHE PATH "Folder of weights and goldens that are not in the repository")
if(NOT BLEND_DATA_DIR)
  message(STATUS "BLEND_DATA_DIR is not set: tests of real weights are skipped")
endif()
# BLEND_REAL_MODEL, an instruct model for the examples: that folder's, or what scripts/real_model has brought.
set(BLEND_REAL_MODEL ${BLEND_DATA_DIR}/real-models/SmolLM2-135M-Instruct.Q4_1.gguf)
if(NOT BLEND_DATA_DIR OR NOT EXISTS ${BLEND_REAL_MODEL})
  set(BLEND_REAL_MODEL ${PROJECT_SOURCE_DIR}/build/models/SmolLM2-135M-Instruct.Q4_1.gguf)
endif()
