#include "media/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "media/file_media.h"
#include "media/io_ring.h"
#include "media/mapped_media.h"
#include "media/redo_log.h"
#include "media/thread_port.h"

namespace flashmob::media {
namespace {

constexpr std::uint32_t kMostAligned = 4096;

// What the file system says that direct transfers must be aligned to; where it says nothing, what suits all.
std::uint32_t alignment_of(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0) {
    const std::uint32_t wanted = std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
    if (wanted != 0) return std::max(std::bit_ceil(wanted), 512u);
  }
#else
  (void)fd;
#endif
  return kMostAligned;
}

// Returns an errno value.
int punch(int fd, std::uint64_t offset, std::uint64_t bytes) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  return ::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

std::int32_t transfer_some(int fd, const BlockRequest& request) {
  if (request.data == nullptr) return -punch(fd, request.offset, request.bytes);
  const iovec part{request.data, request.bytes};
  const auto at = static_cast<off_t>(request.offset);
  ssize_t moved;
  do {
    moved =
        request.is_write ? ::pwritev2(fd, &part, 1, at, request.durable ? RWF_DSYNC : 0) : ::preadv(fd, &part, 1, at);
  } while (moved < 0 && errno == EINTR);
  return moved < 0 ? -errno : static_cast<std::int32_t>(moved);
}

class DirectFile final : public BlockStore {
 public:
  DirectFile(FileDescriptor file, std::string path, std::uint64_t size_bytes, std::uint32_t alignment)
      : BlockStore(size_bytes, alignment),
        file_(std::move(file)),
        path_(std::move(path)),
        threads_([this](const BlockRequest& request) { return transfer_some(file_.get(), request); }) {}

  std::unique_ptr<BlockPort> make_port(std::uint32_t depth) override {
    if (auto ring = make_io_ring(file_.get(), depth)) return ring;
    return threads_.make_port(depth);
  }

  int transfer(const BlockRequest& request) override {
    for (BlockRequest rest = request; rest.bytes != 0;) {
      const std::int32_t moved = transfer_some(file_.get(), rest);
      if (moved <= 0) return moved == 0 ? EIO : -moved;  // nothing: the file has been cut short
      rest.offset += static_cast<std::uint32_t>(moved);
      rest.data += moved;
      rest.bytes -= static_cast<std::uint32_t>(moved);
    }
    return 0;
  }

  int deallocate(std::uint64_t offset, std::uint64_t bytes) override { return punch(file_.get(), offset, bytes); }

  int flush() override { return ::fdatasync(file_.get()) == 0 ? 0 : errno; }
  std::string describe() const override { return "direct:" + path_; }

 private:
  FileDescriptor file_;
  std::string path_;
  WaitingThreads threads_;
};

}  // namespace

OpenedDirectFile open_direct_file(const std::string& path, std::uint64_t size_bytes) {
  OpenedFile opened = open_store_file(path, size_bytes);
  const std::uint64_t bytes = opened.size_bytes;
  // A killed server of file: media left it, and has it finish its last writes.
  if (const std::string redo = RedoLog::path_of(opened.image_path); ::access(redo.c_str(), F_OK) == 0) {
    if (opened.created) ::unlink(path.c_str());
    throw_file_error(redo, "holds the last writes to the image", "serve it as file:" + path + " once");
  }
  if (struct stat info{}; ::fstat(opened.file.get(), &info) == 0 &&
                          static_cast<std::uint64_t>(info.st_size) < round_up(bytes, kPageBytes) &&
                          ::ftruncate(opened.file.get(), static_cast<off_t>(round_up(bytes, kPageBytes))) != 0)
    throw_file_error(path, "cannot be grown to whole pages", errno, "check the file system");
  // On the open file, so that it is the one that is locked; where the file system cannot, it says so here.
  const int flags = ::fcntl(opened.file.get(), F_GETFL);
  if (::fcntl(opened.file.get(), F_SETFL, flags | O_DIRECT) != 0) {
    const int error = errno;
    if (opened.created) ::unlink(path.c_str());
    throw_file_error(path, "its file system has no direct I/O (O_DIRECT)", error,
                     "use file:" + path + ", or put the file on another file system, such as ext4 or xfs");
  }
  const std::uint32_t alignment = alignment_of(opened.file.get());
  if (alignment > kMostAligned)
    throw_file_error(path, "its disk has blocks of " + std::to_string(alignment) + " bytes",
                     "use file:" + path + ", or a disk with blocks of at most 4096 bytes");
  auto file = std::make_unique<DirectFile>(std::move(opened.file), path, round_up(bytes, kPageBytes), alignment);
  // A file system may take the flag and refuse the transfer.
  const std::unique_ptr<std::byte, void (*)(void*)> page(
      static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kPageBytes)), std::free);
  if (const int error = file->transfer({0, page.get(), kPageBytes, 0, false, false}); error != 0)
    throw_file_error(path, "cannot be read by direct I/O (O_DIRECT)", error, "use file:" + path);
  return {std::move(file), bytes, std::move(opened.image_path)};
}

}  // namespace flashmob::media
