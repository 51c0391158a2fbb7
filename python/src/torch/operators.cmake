# evenorm_torch_operators(TARGET TORCH): object files of the operators in PyTorch's dispatcher and their derivatives, for
# the Python package's modules and for evenorm::torch (src/api/libtorch/). TORCH is a folder with PyTorch's include/. Both
# compile them with the same command lines, so that ccache reuses the objects.
set(evenorm_torch_sources "${CMAKE_CURRENT_LIST_DIR}")
function(evenorm_torch_settings target torch)
  evenorm_settings(${target})
  target_include_directories(${target} SYSTEM PRIVATE "${torch}/include" "${torch}/include/torch/csrc/api/include")
  target_link_libraries(${target} PRIVATE evenorm::evenorm)
  # at::parallel_for is OpenMP code in a header. It is compiled for OpenMP but linked to the runtime that PyTorch brings,
  # so threads and their number are PyTorch's.
  target_compile_options(${target} PRIVATE -fopenmp)
endfunction()
function(evenorm_torch_operators target torch)
  file(GLOB sources CONFIGURE_DEPENDS "${evenorm_torch_sources}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/eager\\.cpp$")  # for Python only
  add_library(${target} OBJECT ${sources})
  evenorm_torch_settings(${target} "${torch}")
endfunction()
