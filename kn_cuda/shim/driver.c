// A driver that is none, for cuDNN to build graphs where no GPU is.
//
// cuDNN loads a part of itself that needs libcuda.so.1 to be there, and hands every kernel that it
// has compiled to the driver. This one takes any of them and keeps none; what would need a device
// says that it cannot. So a graph that cuDNN builds here is one that it would hand to a driver:
// whether that takes it is not shown.

enum { SUCCESS = 0, STUB = 34 };  // CUDA_ERROR_STUB_LIBRARY

static char anything;

#define REFUSED(name) int name(void) { return STUB; }
REFUSED(cuInit)
REFUSED(cuDriverGetVersion)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetCount)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuStreamGetCtx)
REFUSED(cuGetProcAddress)
REFUSED(cuGetProcAddress_v2)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleUnload)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuTensorMapEncodeIm2col)
REFUSED(cuTensorMapEncodeTiled)

int cuGetErrorName(int error, const char** text) { return *text = "no driver", SUCCESS; }
int cuGetErrorString(int error, const char** text) { return *text = "there is no driver", SUCCESS; }

int cuLibraryLoadData(
    void** library, const void* code, void* options, void* values, unsigned count,
    void* library_options, void* library_values, unsigned library_count) {
    return *library = &anything, SUCCESS;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
    return *kernel = library, SUCCESS;
}
int cuLibraryUnload(void* library) { return SUCCESS; }
int cuKernelGetFunction(void** function, void* kernel) { return *function = kernel, SUCCESS; }
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
    return *value = 0, SUCCESS;
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) { return SUCCESS; }
