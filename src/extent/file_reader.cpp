// Images and block devices as readers.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "extent/sources.h"

namespace flashmob::extent {
namespace {

constexpr std::uint64_t kWindow = 1 << 20;
constexpr std::uint64_t kAlignment = 4096;

class FileReader : public DeviceReader {
 public:
  FileReader(const std::string& path, int flags) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (file_ < 0 && errno == EBUSY)
      throw ExtentError("is in use, by a mounted file system perhaps; unmount it, or name the mounted directory");
    if (file_ < 0) throw ExtentError(std::strerror(errno));
    const off_t end = ::lseek(file_, 0, SEEK_END);
    if (end < 0) {
      const int error = errno;
      ::close(file_);
      throw ExtentError(std::strerror(error));
    }
    size_ = static_cast<std::uint64_t>(end);
  }
  ~FileReader() override { ::close(file_); }
  std::uint64_t size_bytes() const override { return size_; }

  void read(std::uint64_t offset, std::span<std::byte> to) override {
    while (!to.empty()) {
      const ssize_t got = ::pread(file_, to.data(), to.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        throw ExtentError("cannot be read at byte " + std::to_string(offset) + ": " +
                          (got == 0 ? "it ends there" : std::strerror(errno)));
      to = to.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  int file_;
  std::uint64_t size_ = 0;
};

// Direct I/O is in whole blocks to aligned memory.
class DirectReader : public DeviceReader {
 public:
  explicit DirectReader(const std::string& path)
      : file_(path, O_DIRECT), window_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kWindow)), &std::free) {
    if (!window_) throw ExtentError("there is no memory to read it");
  }
  std::uint64_t size_bytes() const override { return file_.size_bytes(); }

  void read(std::uint64_t offset, std::span<std::byte> to) override {
    while (!to.empty()) {
      const std::uint64_t begin = offset / kAlignment * kAlignment;
      const std::uint64_t wanted = (offset + to.size() - begin + kAlignment - 1) / kAlignment * kAlignment;
      const std::uint64_t bytes = std::min({wanted, kWindow, file_.size_bytes() - std::min(begin, file_.size_bytes())});
      if (begin + bytes <= offset)
        throw ExtentError("cannot be read at byte " + std::to_string(offset) + ": it ends there");
      file_.read(begin, {window_.get(), bytes});
      const std::size_t usable = std::min<std::uint64_t>(begin + bytes - offset, to.size());
      std::memcpy(to.data(), window_.get() + (offset - begin), usable);
      to = to.subspan(usable);
      offset += usable;
    }
  }

 private:
  FileReader file_;
  std::unique_ptr<std::byte, decltype(&std::free)> window_;
};

}  // namespace

std::unique_ptr<DeviceReader> open_file_reader(const std::string& path) {
  struct stat found{};
  const bool is_device = ::stat(path.c_str(), &found) == 0 && S_ISBLK(found.st_mode);
  return std::make_unique<FileReader>(path, is_device ? O_EXCL : 0);
}

std::unique_ptr<DeviceReader> open_direct_reader(const std::string& path) {
  return std::make_unique<DirectReader>(path);
}

}  // namespace flashmob::extent
