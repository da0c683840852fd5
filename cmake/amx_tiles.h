// Gives the AMX intrinsics of GCC's headers the memory operands that they lack. Force-included into ggml's kernels.
//
// Up to some release of GCC 12, `_tile_loadconfig` declares 8 of the 64 bytes that it reads, and `_tile_loadd` declares
// none in any version: the optimizer drops the stores of the configuration, and the first product dies with SIGILL.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__AMX_TILE__)

#include <immintrin.h>

#undef _tile_loadconfig
#define _tile_loadconfig(config) \
    __asm__ volatile("ldtilecfg\t%0" : : "m"(*reinterpret_cast<const char(*)[64]>(config)))

#define PYSPEC_TILE_NUMBER_(tile) #tile
#define PYSPEC_TILE_NUMBER(tile) PYSPEC_TILE_NUMBER_(tile)

#undef _tile_loadd
#define _tile_loadd(tile, base, stride)                                             \
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm" PYSPEC_TILE_NUMBER(tile)         \
                     :                                                              \
                     : "r"((const void *)(base)), "r"((long)(stride)) : "memory")

#endif
