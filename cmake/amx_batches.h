// Keeps ggml's AMX kernels to products that they compute right. Force-included into amx/amx.cpp.
//
// Where the right side is a row of matrices, one for each of several sequences, these kernels read the weights beyond
// their end for all but the first, and write each result four times as far as it belongs, over other memory. One matrix
// of all rows says the same of weights that are one matrix; weights that are several stay in plain memory.
#pragma once

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)

#include "amx/mmq.h"
#include "ggml.h"

static void pyspec_amx_mul_mat(const struct ggml_compute_params * params, struct ggml_tensor * result) {
    ggml_tensor flat = *result, right = *result->src[1];
    for (ggml_tensor * tensor : {&flat, &right}) {
        tensor->ne[1] *= tensor->ne[2] * tensor->ne[3];
        tensor->ne[2] = tensor->ne[3] = 1;
    }
    flat.src[1] = &right;
    ggml_backend_amx_mul_mat(params, &flat);
}

static bool pyspec_can_be_src0(const struct ggml_tensor * weights) {
    return ggml_is_contiguous(weights) && weights->ne[2] == 1 && weights->ne[3] == 1;
}

static bool pyspec_can_be_src1(const struct ggml_tensor * right) {
    return ggml_is_contiguous(right);
}

#define ggml_backend_amx_mul_mat pyspec_amx_mul_mat
#define ggml_is_contiguous(operand) pyspec_can_be_##operand(operand)

#endif
