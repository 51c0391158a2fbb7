/* What C11 has to say about the C API: c_api_c11.c, for c_api_test.cpp. */
#ifndef EVENORM_TESTS_C_API_C11_H_
#define EVENORM_TESTS_C_API_C11_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns NULL, or what went wrong. */
const char* evenorm_c11_forward(void);
const char* evenorm_c11_plain_forms(void);
const char* evenorm_c11_gradients(void);
const char* evenorm_c11_sharded(void);

#ifdef __cplusplus
}
#endif

#endif
