#include "media/cow_media.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "media/image_file.h"
#include "media/redo_log.h"

namespace flashmob::media {
namespace {

// Each released span cuts the view in two and is a mapping of its own, and the kernel allows a process some 65,000 of
// them: release only spans that are worth one, and no more of them than leave most mappings to others.
constexpr std::uint64_t kSpanBytes = kHugePageBytes;
constexpr std::int64_t kMostSpans = 8'192;
std::atomic<std::int64_t> spans_of_process{0};

// What hosts changed about the image while it was served as file: or direct:. The view has its format and its marks,
// and an identity of its own: both may be attached to one host.
std::optional<SavedState> state_of_image(const std::string& image_path, std::uint64_t size_bytes) {
  const auto saved = read_saved(image_path);
  if (!saved) return std::nullopt;
  if (saved->deleted)
    throw_file_error(image_path, "a host has deleted this namespace",
                     "delete " + StateKeeper::path_of(image_path) + " to have it back");
  SavedState view;
  view.size_bytes = size_bytes;
  view.lba_bytes = saved->lba_bytes;
  const std::uint64_t blocks = size_bytes / view.lba_bytes;  // the view may be of the image's beginning
  for (const SavedRange& range : saved->uncorrectable)
    if (range.first < blocks) view.uncorrectable.push_back({range.first, std::min(range.blocks, blocks - range.first)});
  return view;
}

}  // namespace

CowMedia::CowMedia(std::uint64_t size_bytes, std::byte* base, std::uint64_t mapped_bytes, FileDescriptor file,
                   std::string path, const std::string& image_path, std::optional<SavedState> found)
    : MappedMedia(size_bytes, base, mapped_bytes, kPageBytes, true),
      file_(std::move(file)),
      path_(std::move(path)),
      found_(std::move(found)) {
  RedoLog::finish_what_was_begun(image_path, {base, size_bytes}, identity_of(file_));
}

std::unique_ptr<CowMedia> CowMedia::open(const std::string& path, std::uint64_t size_bytes) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    throw_file_error(path, "cannot be opened for reading", errno, "name an existing file that you may read");
  }
  const std::uint64_t file_bytes = regular_file_size(file, path);
  lock_file(file, path, LOCK_SH);
  if (file_bytes == 0) throw_file_error(path, "is empty", "name a file with content, or use memory");
  const std::uint64_t whole_pages = round_up(file_bytes, kPageBytes);
  if (size_bytes == 0) size_bytes = whole_pages;
  if (size_bytes > whole_pages) {
    throw_file_error(
        path, "has " + std::to_string(file_bytes) + " bytes, fewer than size_bytes = " + std::to_string(size_bytes),
        "use size_bytes = 0 (no --size) to take the file's own size");
  }
  const std::string image_path = image_path_of(file, path);
  std::optional<SavedState> found = state_of_image(image_path, size_bytes);
  const std::uint64_t mapped_bytes = round_up(size_bytes, kPageBytes);
  void* mapping = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (mapping == MAP_FAILED) {
    throw_file_error(path, "cannot be mapped", errno, "use a smaller size_bytes (--size) or another file system");
  }
  ::madvise(mapping, mapped_bytes, MADV_DONTDUMP);
  return std::unique_ptr<CowMedia>(new CowMedia(size_bytes, static_cast<std::byte*>(mapping), mapped_bytes,
                                                std::move(file), path, image_path, std::move(found)));
}

CowMedia::~CowMedia() { spans_of_process -= static_cast<std::int64_t>(released_.size()); }

void CowMedia::take_in() {
  const std::uint64_t all = round_up(size_bytes(), kPageBytes);
  void* const copy = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED)
    throw_file_error(path_, "does not fit into memory", errno, "use a smaller size_bytes (--size)");
  bool reached = true;
  for (std::uint64_t at = 0; reached && at < size_bytes(); at += kSpanBytes) {
    const std::uint64_t bytes = std::min(kSpanBytes, size_bytes() - at);
    // What is zero takes no memory.
    reached = access([&] {
      if (!is_zero(base() + at, bytes)) std::memcpy(static_cast<std::byte*>(copy) + at, base() + at, bytes);
    });
  }
  if (!reached || ::mremap(copy, all, all, MREMAP_MAYMOVE | MREMAP_FIXED, base()) == MAP_FAILED) {
    const int why = reached ? errno : EIO;
    ::munmap(copy, all);
    throw_file_error(path_, "cannot be taken into memory", why, "nobody may cut it short meanwhile");
  }
  ::madvise(base(), all, MADV_DONTDUMP);
  forget_file();
}

bool CowMedia::discard(std::uint64_t offset, std::uint64_t bytes) {
  // Zeroes would take memory, where blocks that nobody has written take none: once no more spans can be released, what
  // a host no longer needs stays as it is.
  if (bytes >= kSpanBytes && spans_of_process >= kMostSpans) {
    const std::lock_guard lock(mutex_);
    const auto behind = released_.upper_bound(offset + bytes);
    if (behind == released_.begin() || std::prev(behind)->second < offset) return true;
  }
  return deallocate(offset, bytes);
}

// Adds a span to the set, joined with those that it touches. False: there are as many as there may be.
bool CowMedia::note_released(std::uint64_t first, std::uint64_t end) {
  auto touching = released_.upper_bound(first);
  if (touching != released_.begin() && std::prev(touching)->second >= first) --touching;
  const bool joins = touching != released_.end() && touching->first <= end;
  if (!joins && spans_of_process >= kMostSpans) return false;
  while (touching != released_.end() && touching->first <= end) {
    first = std::min(first, touching->first);
    end = std::max(end, touching->second);
    touching = released_.erase(touching);
    --spans_of_process;
  }
  released_.emplace(first, end);
  ++spans_of_process;
  return true;
}

bool CowMedia::release(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes < kSpanBytes) return false;
  const std::lock_guard lock(mutex_);
  if (!note_released(offset, offset + bytes)) return false;
  // Dropping private pages would bring the file's bytes back, so anonymous memory takes the place of the view. The
  // replacement is atomic for concurrent readers.
  std::byte* const place = base() + offset;
  if (::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED)
    return false;
  ::madvise(place, bytes, MADV_DONTDUMP);  // what hosts write there is theirs, as it was in the view
  return true;
}

}  // namespace flashmob::media
