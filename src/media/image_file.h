// Which file an image is: by what its redo log knows it again, and the one name by which what lies beside it goes.
//
// Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "media/mapped_media.h"

namespace flashmob::media {

// A file system gives the inode number of a file that was removed to the next one that is made, so the time at which
// the file was made (statx(2), STX_BTIME) belongs to it. 0 where the file system keeps none: the device must do, which
// may be another after a remount and says nothing where the time is known.
struct ImageIdentity {
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  std::int64_t born_ns = 0;
  friend bool operator==(const ImageIdentity& a, const ImageIdentity& b) {
    const bool is_same = a.born_ns != 0 && b.born_ns != 0 ? a.born_ns == b.born_ns : a.device == b.device;
    return a.inode == b.inode && is_same;
  }
};
ImageIdentity identity_of(const FileDescriptor& file);

// The absolute path of the open file, without symbolic links: an image that is named by a link has the state and the
// redo log that it has by its own name. Throws ConfigError where `path` is another file by now, and where a state or a
// log lies beside the link.
std::string image_path_of(const FileDescriptor& file, const std::string& path);

}  // namespace flashmob::media
