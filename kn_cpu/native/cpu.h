#pragma once

// Whether the processor and the operating system can run the library of an instruction set. Only the
// one of the library `base` may be asked: it uses nothing that others lack.
int kn_cpu_runs(const char *isa);
