# evenorm_torch_operators: object files of the operators in PyTorch's dispatcher and their derivatives, for the Python
# package's extension and for evenorm::torch (src/api/libtorch/). Both compile them with the same command lines, so that
# ccache reuses the objects. EVENORM_TORCH_DIR is PyTorch's folder.
file(GLOB operator_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
list(FILTER operator_sources EXCLUDE REGEX "/extension\\.cpp$")  # for Python only
add_library(evenorm_torch_operators OBJECT ${operator_sources})
evenorm_settings(evenorm_torch_operators)
set(torch_includes "${EVENORM_TORCH_DIR}/include" "${EVENORM_TORCH_DIR}/include/torch/csrc/api/include")
target_include_directories(evenorm_torch_operators SYSTEM PRIVATE ${torch_includes})
target_link_libraries(evenorm_torch_operators PRIVATE evenorm::evenorm)
# at::parallel_for is OpenMP code in a header. It is compiled for OpenMP but linked to the runtime that PyTorch brings,
# so threads and their number are PyTorch's.
target_compile_options(evenorm_torch_operators PRIVATE -fopenmp)
