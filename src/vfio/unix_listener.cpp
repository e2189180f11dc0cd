#include "vfio/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "vfio/message_socket.h"

namespace flashmob::vfio {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kOwnerAndGroup = 0660;
constexpr int kBacklog = 64;

std::string lock_path(const std::string& path) { return path + ".lock"; }

bool is_trusted(uid_t owner) { return owner == geteuid() || owner == 0; }

// Whoever may write to the folder could put a socket of his own in the place of ours.
void check_folder(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct stat link{};
  struct stat status{};
  if (lstat(folder.c_str(), &link) != 0 || stat(folder.c_str(), &status) != 0)
    throw ConfigError("the folder '" + folder + "' cannot be used: " + std::strerror(errno) + "; make it first");
  if (!is_trusted(link.st_uid) || !is_trusted(status.st_uid))
    throw ConfigError("the folder '" + folder + "' belongs to another user: choose one of this user's for the socket");
  const bool group_may = (status.st_mode & S_IWGRP) != 0 && status.st_gid != getegid();
  const bool others_may = (status.st_mode & S_IWOTH) != 0;
  if ((group_may || others_may) && (status.st_mode & S_ISVTX) == 0)
    throw ConfigError("other users may write to the folder '" + folder +
                      "': chmod go-w it, or choose another for the socket");
}

[[noreturn]] void throw_taken(const std::string& path) {
  throw ConfigError("'" + path + "' is served by another process: stop it, or choose another path");
}

// Whether `fd` is still the file at `path`, and not one that its last owner has removed meanwhile.
bool is_at(int fd, const std::string& path) {
  struct stat ours{};
  struct stat there{};
  return fstat(fd, &ours) == 0 && lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

// Throws where what is at the lock's place is no lock of this user's.
void check_lock(const std::string& name, const struct stat& status) {
  const std::string or_else = ", or choose another path for the socket";
  if (S_ISLNK(status.st_mode))
    throw ConfigError("'" + name + "' is a symbolic link, which is not followed: remove it" + or_else);
  if (!S_ISREG(status.st_mode)) throw ConfigError("'" + name + "' is no ordinary file: remove it" + or_else);
  if (!is_trusted(status.st_uid))
    throw ConfigError("'" + name + "' belongs to another user: have it removed" + or_else);
}

UniqueFd take_lock(const std::string& path) {
  const std::string name = lock_path(path);
  for (;;) {
    UniqueFd lock(open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, kOwnerOnly));
    struct stat status{};
    if (!lock) {
      const int error = errno;
      const bool exists = lstat(name.c_str(), &status) == 0;
      if (exists) check_lock(name, status);
      throw ConfigError(
          "cannot " + std::string(exists ? "open" : "make") + " '" + name + "': " + std::strerror(error) +
          (exists ? "; chmod u+rw it, or remove it" : "; does its folder exist, and may this user write there?"));
    }
    if (fstat(lock.get(), &status) == 0) check_lock(name, status);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) throw_taken(path);
      throw ConfigError("cannot lock '" + name + "': " + std::strerror(errno) +
                        "; choose a folder on another file system");
    }
    if (is_at(lock.get(), name)) return lock;
  }
}

// Programs of others know nothing of our lock, so a socket that is there is asked. Nothing waits for an answer: one
// whose queue is full listens, too.
void clear_away(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) throw ConfigError("'" + path + "' exists and is no socket: choose another path");
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) throw ConfigError("cannot make a socket for '" + path + "': " + std::strerror(errno));
  const bool answered = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (answered || errno == EAGAIN) throw_taken(path);
  if (errno != ECONNREFUSED)
    throw ConfigError("'" + path + "' cannot be examined: " + std::strerror(errno) + "; choose another path");
  unlink(path.c_str());
}

// Where the umask has taken what the group is to have. By descriptor: no name is followed to something else.
void set_mode(const std::string& path, int flags, mode_t mode) {
  const UniqueFd file(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC | flags));
  if (!file || chmod(("/proc/self/fd/" + std::to_string(file.get())).c_str(), mode) != 0)
    throw ConfigError("'" + path + "' cannot be given to the group: " + std::strerror(errno) +
                      "; leave socket_mode out, or choose a folder on another file system");
}

}  // namespace

UnixListener::UnixListener(const std::string& path, SocketAccess access) : path_(path) {
  const sockaddr_un address = unix_address(path);
  check_folder(path);
  lock_ = take_lock(path);
  try {
    clear_away(path, address);
    socket_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) throw ConfigError("cannot make a socket for '" + path + "': " + std::strerror(errno));
    // Before the file is there, so that it never has another mode.
    fchmod(socket_.get(), kOwnerOnly);
    struct stat status{};
    if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        lstat(path.c_str(), &status) != 0)
      throw ConfigError("cannot make the socket '" + path + "': " + std::strerror(errno) +
                        "; does its folder exist, and may this user write there?");
    device_ = status.st_dev;
    inode_ = status.st_ino;
    // Nobody can have connected yet.
    if (access == SocketAccess::group) set_mode(path, 0, kOwnerAndGroup);
    if (listen(socket_.get(), kBacklog) != 0)
      throw ConfigError("cannot listen at '" + path + "': " + std::strerror(errno));
  } catch (...) {
    close();
    throw;
  }
}

void UnixListener::close() {
  socket_.reset();
  if (!lock_) return;
  struct stat status{};
  if (inode_ != 0 && lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_)
    unlink(path_.c_str());
  // The lock goes last: until then nobody else takes the path.
  unlink(lock_path(path_).c_str());
  lock_.reset();
}

void make_private_folder(const std::string& path, SocketAccess access) {
  const std::filesystem::path folder = path;
  if (folder.empty() || std::filesystem::is_directory(folder)) return;
  make_private_folder(folder.parent_path(), access);
  const bool made = mkdir(folder.c_str(), 0700) == 0;
  if (!made && errno != EEXIST)
    throw ConfigError("the folder " + folder.string() + " cannot be made (" + std::strerror(errno) +
                      "); choose one that this user may write to");
  if (made && access == SocketAccess::group) set_mode(path, O_DIRECTORY, 0750);
}

}  // namespace flashmob::vfio
