// The step runner; `kn_run` itself is declared in abi.h.
#pragma once
#include "abi.h"

// How many helper threads this process has started.
int kn_helpers(void);
