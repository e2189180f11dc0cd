#include "flashmob/gpu/simt/cuda_library.h"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

namespace flashmob::gpu::simt {
namespace {

constexpr const char* kFileName = "libflashmob_cuda.so";

// A buffer for what the library has to say.
class Said {
 public:
  CudaText text() { return {text_.data(), text_.size()}; }
  std::string str() const { return text_.data(); }
  [[noreturn]] void raise() const { throw CudaError(str()); }

 private:
  std::array<char, 512> text_{};
};

// The folder of the program or library that this code is part of.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

void* open_library(std::string& reason) {
  std::string tried;
  const auto attempt = [&](const std::string& path) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) tried = dlerror();
    return handle;
  };
  if (const char* const chosen = std::getenv("FLASHMOB_CUDA_LIBRARY"); chosen != nullptr && *chosen != '\0') {
    void* const handle = attempt(chosen);
    if (handle == nullptr) reason = "FLASHMOB_CUDA_LIBRARY cannot be loaded: " + tried;
    return handle;
  }
  const std::filesystem::path beside = own_folder() / kFileName;
  std::error_code ignored;
  void* const handle = std::filesystem::exists(beside, ignored) ? attempt(beside.string()) : attempt(kFileName);
  if (handle == nullptr)
    reason = "flashmob was built without its CUDA library (configure with -DFLASHMOB_CUDA=ON): " + tried;
  return handle;
}

struct Loaded {
  const CudaAbi* abi = nullptr;
  std::string reason;
};

Loaded load() {
  Loaded loaded;
  void* const handle = open_library(loaded.reason);
  if (handle == nullptr) return loaded;
  using Entry = const CudaAbi* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kCudaAbiSymbol));
  const CudaAbi* const abi = entry == nullptr ? nullptr : entry();
  if (abi == nullptr || abi->version != kCudaAbiVersion) {
    loaded.reason = std::string(kFileName) + " belongs to another version of flashmob; build both together";
    return loaded;
  }
  loaded.abi = abi;
  return loaded;
}

const Loaded& loaded_once() {
  static const Loaded loaded = load();
  return loaded;
}

}  // namespace

const CudaAbi& cuda_library() {
  const Loaded& loaded = loaded_once();
  if (loaded.abi == nullptr) throw CudaError(loaded.reason);
  return *loaded.abi;
}

std::string why_no_cuda() {
  const Loaded& loaded = loaded_once();
  if (loaded.abi == nullptr) return loaded.reason;
  Said said;
  return loaded.abi->devices(said.text()) > 0 ? "" : said.str();
}

CudaBackend::CudaBackend(std::int32_t ordinal) : abi_(cuda_library()) {
  Said said;
  device_ = abi_.open(ordinal, said.text());
  if (device_ == nullptr) said.raise();
}

CudaBackend::~CudaBackend() { abi_.close(device_); }

CudaBackend::Kernel CudaBackend::launch_by_name(const char* name, const Shape& shape, void** arguments,
                                                const CudaStream* stream) {
  Said said;
  const Kernel kernel = abi_.launch(device_, name, &shape, arguments, stream, said.text());
  if (kernel == 0) said.raise();
  return kernel;
}

std::uint32_t CudaBackend::resident_blocks_by_name(const char* name, const Shape& shape) const {
  Said said;
  const std::uint32_t blocks = abi_.resident_blocks(device_, name, &shape, said.text());
  if (blocks == 0) said.raise();
  return blocks;
}

void CudaBackend::wait(Kernel kernel) {
  Said said;
  if (!abi_.wait(device_, kernel, said.text())) said.raise();
}

void CudaBackend::pass(std::uint64_t duration_ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
}

bool CudaBackend::finished(Kernel kernel) const { return abi_.finished(device_, kernel); }
std::uint64_t CudaBackend::now_ns() const { return abi_.now_ns(device_); }
std::uint32_t CudaBackend::multiprocessors() const { return abi_.multiprocessors(device_); }

std::uint32_t CudaBackend::most_shared_bytes() const { return abi_.most_shared_bytes(device_); }

std::string CudaBackend::describe() const {
  Said said;
  abi_.describe(device_, said.text());
  return said.str();
}

void* CudaBackend::allocate(CudaPlace place, std::size_t bytes) {
  Said said;
  void* const data = abi_.allocate(device_, place, bytes, said.text());
  if (data == nullptr) said.raise();
  return data;
}

void CudaBackend::release(void* data) { abi_.release(device_, data); }

void CudaBackend::copy(void* to, const void* from, std::size_t bytes) {
  Said said;
  if (!abi_.copy(device_, to, from, bytes, said.text())) said.raise();
}

void CudaBackend::share_host_memory(void* data, std::size_t bytes) {
  Said said;
  if (!abi_.share(device_, data, bytes, said.text())) said.raise();
}

void CudaBackend::unshare_host_memory(void* data, std::size_t bytes) { abi_.unshare(device_, data, bytes); }

ClockReport CudaBackend::check_clock() {
  Said said;
  ClockReport report;
  if (!abi_.check_clock(device_, &report, said.text())) said.raise();
  return report;
}

CudaMemoryHandle CudaBackend::export_memory(void* data) {
  Said said;
  CudaMemoryHandle handle{};
  if (!abi_.export_memory(device_, data, &handle, said.text())) said.raise();
  return handle;
}

void* CudaBackend::import_memory(const CudaMemoryHandle& handle) {
  Said said;
  void* const data = abi_.import_memory(device_, &handle, said.text());
  if (data == nullptr) said.raise();
  return data;
}

void CudaBackend::close_import(void* data) { abi_.close_import(device_, data); }

}  // namespace flashmob::gpu::simt
