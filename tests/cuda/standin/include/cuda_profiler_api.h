#pragma once
extern "C" int cudaProfilerStart();
extern "C" int cudaProfilerStop();
