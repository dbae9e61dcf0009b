// The driver: modules that NVRTC has compiled, whose kernels the host runs. See machine.h.
#include <cuda.h>
#include <elf.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "machine.h"

using namespace machine;
using Guard = std::lock_guard<std::recursive_mutex>;

static_assert(CUDA_ERROR_CAPTURED_EVENT == CUresult(CAPTURED_EVENT), "the same numbers");

static const unsigned CUBIN = 190, MOST_THREADS = 1024, REGISTERS = 65536;
static const size_t MOST_SHARED = 227 << 10;
static unsigned capability = 90;

static std::map<std::string, Kernel> registered;

struct Function {
    std::string name;
    Kernel* kernel;  // null for those of others, which nobody has compiled for the host
};

struct Module {
    std::vector<std::string> sections;
    std::map<std::string, Function> functions;
};

static int context_itself;
static CUcontext context() { return reinterpret_cast<CUcontext>(&context_itself); }

static CUresult result(Error error) { return CUresult(error); }

// ---- what tests ask ----------------------------------------------------------------------------

extern "C" void kn_standin_kernel(
    const char* name, void* run, size_t pointer_bytes, size_t number_bytes, size_t static_shared,
    unsigned registers
) {
    Guard guard(lock);
    using Run = decltype(Kernel::run);
    registered[name] = {
        reinterpret_cast<Run>(run), pointer_bytes, number_bytes, static_shared, registers};
}

extern "C" void kn_standin_set(unsigned order, int eager, unsigned arch, size_t bytes) {
    Guard guard(lock);
    seed = order, is_eager = eager, capability = arch, bytes_left = bytes;
}

extern "C" size_t kn_standin_launches() { return launches; }
extern "C" size_t kn_standin_graph_launches() { return graph_launches; }
extern "C" const char* kn_standin_trouble() { return trouble.c_str(); }

// Adds work of a library to a stream.
extern "C" int kn_standin_add(
    void* stream, void (*work)(const void*), const void* data, size_t bytes
) {
    Guard guard(lock);
    Stream* found = stream_of(stream);
    if (!found) return INVALID_HANDLE;
    const char* first = static_cast<const char*>(data);
    std::vector<char> kept(first, first + bytes);
    return add(found, [work, kept] { work(kept.data()); });
}

extern "C" int kn_standin_holds(const void* address, size_t bytes) {
    return piece_of(address, bytes).kind == Kind::DEVICE;
}

extern "C" void kn_standin_fail(const char* text) { sticky = said(LAUNCH_FAILED, text); }

// ---- errors and contexts -----------------------------------------------------------------------

extern "C" CUresult cuGetErrorName(CUresult error, const char** text) {
    return *text = name_of(error), CUDA_SUCCESS;
}

extern "C" CUresult cuGetErrorString(CUresult error, const char** text) {
    return *text = error ? trouble.c_str() : "", CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetCurrent(CUcontext* found) {
    return *found = has_context ? context() : nullptr, CUDA_SUCCESS;
}

extern "C" CUresult cuCtxSetCurrent(CUcontext given) { return has_context = given, CUDA_SUCCESS; }

extern "C" CUresult cuCtxGetDevice(CUdevice* device) {
    return *device = 0, has_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

extern "C" CUresult cuStreamGetCtx(CUstream, CUcontext* found) {
    return *found = context(), CUDA_SUCCESS;
}

// ---- modules -----------------------------------------------------------------------------------

// Names of the sections of a cubin; none where it is not one for this GPU.
static std::vector<std::string> sections_of(const char* image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_machine != CUBIN) return {};
    if ((header.e_flags & 0xff) != capability) return {};
    std::vector<Elf64_Shdr> table(header.e_shnum);
    memcpy(table.data(), image + header.e_shoff, table.size() * sizeof table[0]);
    const char* names = image + table[header.e_shstrndx].sh_offset;
    std::vector<std::string> found;
    for (const Elf64_Shdr& section : table) found.push_back(names + section.sh_name);
    return found;
}

extern "C" CUresult cuModuleLoadData(CUmodule* made, const void* image) {
    Guard guard(lock);
    if (!has_context) return result(said(INVALID_CONTEXT, "the thread has no context"));
    auto sections = sections_of(static_cast<const char*>(image));
    if (sections.empty()) return result(said(WRONG_BINARY, "this is no cubin for the GPU"));
    *made = reinterpret_cast<CUmodule>(new Module{sections, {}});
    return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleUnload(CUmodule module) {
    Guard guard(lock);
    drain_all();
    delete reinterpret_cast<Module*>(module);
    return CUDA_SUCCESS;
}

extern "C" CUresult cuModuleGetFunction(CUfunction* found, CUmodule module, const char* name) {
    Guard guard(lock);
    Module& there = *reinterpret_cast<Module*>(module);
    bool is_there = false;
    for (const std::string& section : there.sections)
        is_there = is_there || section == std::string(".text.") + name;
    if (!is_there) return result(said(NOT_FOUND, std::string("no kernel is called ") + name));
    const auto kernel = registered.find(name);
    Function& made = there.functions[name];
    made = {name, kernel == registered.end() ? nullptr : &kernel->second};
    *found = reinterpret_cast<CUfunction>(&made);
    return CUDA_SUCCESS;
}

extern "C" CUresult cuFuncSetAttribute(
    CUfunction function, CUfunction_attribute attribute, int value
) {
    Guard guard(lock);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_ERROR_NOT_SUPPORTED;
    Kernel* kernel = reinterpret_cast<Function*>(function)->kernel;
    if (!kernel || value < 0 || value + kernel->static_shared > MOST_SHARED)
        return result(said(INVALID_VALUE, "more shared memory than a block may have"));
    kernel->most_dynamic = value;
    return CUDA_SUCCESS;
}

// ---- launches ----------------------------------------------------------------------------------

struct Launch {
    Function function;
    unsigned grid[3], block[3];
    size_t shared;
    std::vector<char> pointers, numbers;
};

// Returns what a driver refuses, before anything runs.
static Error refusal(const Launch& launch) {
    const Kernel* kernel = launch.function.kernel;
    if (!kernel) return said(NOT_SUPPORTED, "only the host's kernels run: " + launch.function.name);
    const unsigned *grid = launch.grid, *block = launch.block;
    const unsigned long long threads = 1ull * block[0] * block[1] * block[2];
    const unsigned long long blocks = 1ull * grid[0] * grid[1] * grid[2];
    if (!threads || !blocks || threads > MOST_THREADS || block[2] > 64 || grid[0] > 0x7fffffff ||
        grid[1] > 65535 || grid[2] > 65535)
        return said(INVALID_VALUE, "no GPU launches such a grid");
    if (kernel->registers * ((threads + 31) / 32 * 32) > REGISTERS)
        return said(TOO_MANY_RESOURCES, "more registers than a multiprocessor has");
    const size_t most = kernel->most_dynamic > 48 << 10 ? kernel->most_dynamic
                                                        : (48 << 10) - kernel->static_shared;
    if (launch.shared > most)
        return said(INVALID_VALUE, "more dynamic shared memory than was asked for before");
    return FINE;
}

static void run(const Launch& launch) {
    const Kernel& kernel = *launch.function.kernel;
    for (size_t i = 0; i < kernel.pointer_bytes; i += sizeof(void*)) {
        void* address;
        memcpy(&address, launch.pointers.data() + i, sizeof address);
        if (address && piece_of(address, 0).kind != Kind::DEVICE) {
            sticky = said(ILLEGAL_ADDRESS, "a pointer of " + launch.function.name +
                                               " is no address of the device");
            return;
        }
    }
    launches++;
    const char *pointers = launch.pointers.data(), *numbers = launch.numbers.data();
    const char* error =
        kernel.run(launch.grid, launch.block, launch.shared, pointers, numbers, seed);
    if (error) sticky = said(LAUNCH_FAILED, launch.function.name + ": " + error);
}

extern "C" CUresult cuLaunchKernel(
    CUfunction given, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, CUstream handle, void** parameters, void**
) {
    Guard guard(lock);
    if (!has_context) return result(said(INVALID_CONTEXT, "the thread has no context"));
    Stream* stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    const Function& function = *reinterpret_cast<Function*>(given);
    Launch launch{function, {gx, gy, gz}, {bx, by, bz}, shared, {}, {}};
    const Error error = refusal(launch);
    if (error != FINE) return result(error);
    const char* pointers = static_cast<char*>(parameters[0]);
    const char* numbers = static_cast<char*>(parameters[1]);
    launch.pointers.assign(pointers, pointers + function.kernel->pointer_bytes);
    launch.numbers.assign(numbers, numbers + function.kernel->number_bytes);
    return result(add(stream, [launch] { run(launch); }));
}
