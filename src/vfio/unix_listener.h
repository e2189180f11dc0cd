// A UNIX stream socket that listens at a path for as long as it lives, for this user alone or for his group, too.
//
// The path belongs to whoever holds the lock of PATH.lock beside it. The kernel drops the lock with the process, so a
// path that a dead one has left is free, two that start together cannot both have it, and nobody removes the socket
// of who came after. Values; no thread rule.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "vfio/unique_fd.h"

namespace flashmob::vfio {

// Who may connect: to connect is to write to the socket's file. There is none for everybody: who has the socket has the
// drive.
enum class SocketAccess : std::uint8_t {
  owner,  // 0600
  group,  // 0660: the group of the process, or the folder's where that is set-group-ID
};

class UnixListener {
 public:
  // Listens (non-blocking), replacing a socket that nobody listens at any more. Throws ConfigError: the path is taken,
  // or lies in a folder where others could put something in its place.
  explicit UnixListener(const std::string& path, SocketAccess access = SocketAccess::owner);
  ~UnixListener() { close(); }
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  int get() const { return socket_.get(); }
  // Ends listening, and removes the socket from its folder if it is still ours.
  void close();

 private:
  std::string path_;
  UniqueFd lock_;
  UniqueFd socket_;
  dev_t device_ = 0;  // which file the socket is
  ino_t inode_ = 0;
};

// Makes a folder for sockets, and the folders above it, for this user alone, or for his group to pass through. What
// exists stays as it is. Throws ConfigError.
void make_private_folder(const std::string& path, SocketAccess access = SocketAccess::owner);

}  // namespace flashmob::vfio
