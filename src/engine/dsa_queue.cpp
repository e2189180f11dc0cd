#include "engine/dsa_queue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace flashmob::engine::dsa {
namespace {

constexpr std::size_t kPortalBytes = 4096;

#if defined(__x86_64__)
// Intel SDM volume 2, CPUID leaf 07H, subleaf 0, ECX.
constexpr unsigned kMovdir64bBit = 1u << 28;
constexpr unsigned kEnqcmdBit = 1u << 29;

bool cpu_has(unsigned ecx_bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx & ecx_bit) != 0;
}
#endif

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

std::uint64_t number_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : 0;
}

// A queue's attributes, if it is one that a program may use. Queues of the analytics accelerator (iax) are listed on
// the same bus; a queue wqM.N of ours belongs to a device dsaM.
std::optional<QueueInfo> usable_queue(const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  const auto dot = name.find('.');
  if (name.rfind("wq", 0) != 0 || dot == std::string::npos) return std::nullopt;
  std::error_code ignored;
  if (!std::filesystem::exists(folder.parent_path() / ("dsa" + name.substr(2, dot - 2)), ignored)) return std::nullopt;
  if (text_of(folder / "state") != "enabled" || text_of(folder / "type") != "user") return std::nullopt;
  QueueInfo info;
  info.name = name;
  info.shared = text_of(folder / "mode") == "shared";
  info.size = static_cast<std::uint32_t>(std::min<std::uint64_t>(number_of(folder / "size"), UINT32_MAX));
  info.max_batch =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(number_of(folder / "max_batch_size"), UINT32_MAX));
  info.max_transfer_bytes = number_of(folder / "max_transfer_size");
  if (info.size == 0 || info.max_transfer_bytes == 0) return std::nullopt;
  return info;
}

class PortalQueue final : public WorkQueue {
 public:
  PortalQueue(QueueInfo info, int fd, void* portal)
      : info_(std::move(info)), fd_(fd), portal_(static_cast<std::byte*>(portal)) {}
  ~PortalQueue() override { close(); }
  PortalQueue(const PortalQueue&) = delete;
  PortalQueue& operator=(const PortalQueue&) = delete;

  const QueueInfo& info() const override { return info_; }

  bool submit(const Descriptor& descriptor) override {
    // Every 64 bytes of the page are the same portal; going round lets stores be under way at once.
    next_ = (next_ + sizeof(Descriptor)) % kPortalBytes;
    if (info_.shared) return submit_shared(portal_ + next_, descriptor);
    submit_dedicated(portal_ + next_, descriptor);
    return true;
  }

  void close() override {
    if (fd_ < 0) return;
    munmap(portal_, kPortalBytes);
    // The kernel drains what this client has in the queue before it lets go.
    ::close(fd_);
    fd_ = -1;
  }

 private:
  QueueInfo info_;
  int fd_;
  std::byte* portal_;
  std::size_t next_ = 0;
};

// One queue, or why not.
std::unique_ptr<WorkQueue> open_one(const QueueInfo& info, const std::filesystem::path& devices, std::string& why) {
  if (info.shared ? !cpu_has_enqcmd() : !cpu_has_movdir64b()) {
    why = std::string("the CPU lacks ") + (info.shared ? "ENQCMD" : "MOVDIR64B");
    return nullptr;
  }
  const std::string path = (devices / info.name).string();
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    why = path + ": " + std::strerror(errno);
    return nullptr;
  }
  void* const portal = mmap(nullptr, kPortalBytes, PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (portal == MAP_FAILED) {
    why = path + ": its portal cannot be mapped (" + std::strerror(errno) +
          "; newer kernels ask for CAP_SYS_RAWIO on devices of the first generation)";
    ::close(fd);
    return nullptr;
  }
  return std::make_unique<PortalQueue>(info, fd, portal);
}

}  // namespace

bool cpu_has_movdir64b() {
#if defined(__x86_64__)
  return cpu_has(kMovdir64bBit);
#else
  return false;
#endif
}

bool cpu_has_enqcmd() {
#if defined(__x86_64__)
  return cpu_has(kEnqcmdBit);
#else
  return false;
#endif
}

// Both stores pass by the store buffer: what the descriptor points to must be visible before them.
#if defined(__x86_64__)
__attribute__((target("movdir64b"))) void submit_dedicated(void* portal, const Descriptor& descriptor) {
  _mm_sfence();
  _movdir64b(portal, &descriptor);
}

__attribute__((target("enqcmd"))) bool submit_shared(void* portal, const Descriptor& descriptor) {
  _mm_sfence();
  return _enqcmd(portal, &descriptor) == 0;
}
#else
void submit_dedicated(void*, const Descriptor&) { FLASHMOB_CHECK(false && "no such instruction"); }
bool submit_shared(void*, const Descriptor&) {
  FLASHMOB_CHECK(false && "no such instruction");
  return false;
}
#endif

std::vector<QueueInfo> find_queues(const Paths& paths) {
  std::vector<QueueInfo> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(paths.sysfs, error))
    if (auto info = usable_queue(entry.path())) found.push_back(std::move(*info));
  std::sort(found.begin(), found.end(),
            [](const QueueInfo& a, const QueueInfo& b) { return a.shared != b.shared ? b.shared : a.name < b.name; });
  return found;
}

std::unique_ptr<WorkQueue> open_queue(const Paths& paths) {
  std::vector<QueueInfo> queues = find_queues(paths);
  const auto first_shared =
      std::find_if(queues.begin(), queues.end(), [](const QueueInfo& queue) { return queue.shared; });
  if (first_shared != queues.end()) {
    // Engine threads share the load between shared queues.
    static std::atomic<unsigned> turn{0};
    const auto shared = static_cast<unsigned>(queues.end() - first_shared);
    std::rotate(first_shared, first_shared + turn.fetch_add(1, std::memory_order_relaxed) % shared, queues.end());
  }
  std::string why = paths.sysfs.string() + " shows no enabled work queue of type user";
  for (const QueueInfo& info : queues)
    if (auto queue = open_one(info, paths.devices, why)) return queue;
  throw ConfigError("engine.copy = \"dsa\" needs an Intel DSA work queue for each worker: " + why +
                    "; configure one with accel-config, or use \"auto\"");
}

}  // namespace flashmob::engine::dsa
