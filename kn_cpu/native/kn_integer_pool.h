// pool_u8, pool_i8: the maximum of windows; numbers and pointers are those of pool_f32 in kn_pool.h
#pragma once
#include "abi.h"

extern const kn_entry kn_integer_pool_entries[];
