#include "media/image_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "media/redo_log.h"
#include "media/saved_state.h"

namespace flashmob::media {
namespace {

// Earlier versions went by the path as it was given. What they left beside a link must not be passed over.
void refuse_what_lies_beside_the_link(const std::string& beside_link, const std::string& beside_image) {
  std::error_code ignored;
  if (::access(beside_link.c_str(), F_OK) != 0 || std::filesystem::equivalent(beside_link, beside_image, ignored))
    return;
  throw_file_error(beside_link, "lies beside a link, and not beside the image that the link names",
                   "move it to " + beside_image + ", or delete it if that image was never served by this link");
}

}  // namespace

ImageIdentity identity_of(const FileDescriptor& file) {
  ImageIdentity identity;
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return identity;
  identity.inode = info.st_ino;
  identity.device = info.st_dev;
  struct statx more{};
  if (::statx(file.get(), "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 && (more.stx_mask & STATX_BTIME) != 0)
    identity.born_ns = more.stx_btime.tv_sec * 1'000'000'000 + more.stx_btime.tv_nsec;
  return identity;
}

std::string image_path_of(const FileDescriptor& file, const std::string& path) {
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).string();
  if (error) throw_file_error(path, "its links cannot be followed", error.value(), "check the folders on its way");
  struct stat opened, named;
  if (::fstat(file.get(), &opened) != 0 || ::stat(real.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
      opened.st_dev != named.st_dev)
    throw_file_error(path, "was moved or replaced while it was opened", "start again");
  if (real != path) {
    refuse_what_lies_beside_the_link(StateKeeper::path_of(path), StateKeeper::path_of(real));
    refuse_what_lies_beside_the_link(RedoLog::path_of(path), RedoLog::path_of(real));
  }
  return real;
}

}  // namespace flashmob::media
