// Page-aligned memory for rings, buffers and media: anonymous, or a memfd that another process can map. Asks for
// huge pages where the kernel has them; works without.
#pragma once

#include <cstddef>
#include <utility>

namespace flashmob::memory {

class HostMemory {
 public:
  enum class Kind { anonymous, shared_memfd };

  HostMemory() = default;
  // `bytes` is rounded up to whole pages (2 MiB pages from 2 MiB on); zero-filled, committed when first touched.
  // Throws ConfigError when the kernel refuses.
  explicit HostMemory(std::size_t bytes, Kind kind = Kind::anonymous);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(fd_, other.fd_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_; }  // -1 for anonymous
  // The memory stays; for when everyone who is to map the file has it, because descriptors are few.
  void close_fd();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
};

}  // namespace flashmob::memory
