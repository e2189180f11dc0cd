#include "vfio/unix_listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "vfio/message_socket.h"

namespace flashmob::vfio {
namespace {

class UnixListenerTest : public testing::Test {
 protected:
  UnixListenerTest() {
    std::string name = (std::filesystem::temp_directory_path() / "flashmob_listen_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/cntrl";
  }
  ~UnixListenerTest() override { std::filesystem::remove_all(folder_); }
  static unsigned mode_of(const std::string& path) {
    struct stat status{};
    EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777;
  }

  std::string folder_;
  std::string path_;
};

// What a program that knows nothing of our lock leaves or runs at the path.
UniqueFd foreign_socket(const std::string& path, int backlog) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = unix_address(path);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(fd.get(), backlog), 0);
  return fd;
}

TEST_F(UnixListenerTest, ReplacesDeadSocketsOnly) {
  foreign_socket(path_, 1).reset();
  {
    const UnixListener listener(path_);
    EXPECT_THROW(UnixListener{path_}, ConfigError) << "somebody listens";
    EXPECT_TRUE(connect_unix(path_));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_THROW(connect_unix(path_), ConfigError);
  std::ofstream(path_) << "data";
  EXPECT_THROW(UnixListener{path_}, ConfigError) << "an ordinary file is never removed";
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_THROW(UnixListener{std::string(200, 'x')}, ConfigError);
  EXPECT_THROW(connect_unix(""), ConfigError);
}

TEST_F(UnixListenerTest, IsForThisUserAlone) {
  const mode_t before = umask(0);
  make_private_folder(folder_ + "/a/b");
  const UnixListener listener(folder_ + "/a/b/cntrl");
  umask(before);
  for (const char* name : {"/a", "/a/b"}) EXPECT_EQ(mode_of(folder_ + name), 0700u) << name;
  for (const char* name : {"/a/b/cntrl", "/a/b/cntrl.lock"}) EXPECT_EQ(mode_of(folder_ + name), 0600u) << name;
}

TEST_F(UnixListenerTest, IsForTheGroupWhereThatIsSaid) {
  // A umask that would take the group's rights away, as that of most shells does.
  const mode_t before = umask(0077);
  make_private_folder(folder_ + "/a/b", SocketAccess::group);
  const UnixListener listener(folder_ + "/a/b/cntrl", SocketAccess::group);
  umask(before);
  for (const char* name : {"/a", "/a/b"}) EXPECT_EQ(mode_of(folder_ + name), 0750u) << name;
  EXPECT_EQ(mode_of(folder_ + "/a/b/cntrl"), 0660u);
  EXPECT_EQ(mode_of(folder_ + "/a/b/cntrl.lock"), 0600u) << "nobody else has to do with it";
  EXPECT_TRUE(connect_unix(folder_ + "/a/b/cntrl"));
}

TEST_F(UnixListenerTest, ALockThatIsNotOursIsNamed) {
  const std::string lock = path_ + ".lock";
  const auto sentence = [&] {
    try {
      const UnixListener listener(path_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  std::filesystem::create_symlink(folder_ + "/elsewhere", lock);
  EXPECT_NE(sentence().find("symbolic link"), std::string::npos) << sentence();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
  std::filesystem::remove(lock);
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  EXPECT_NE(sentence().find("no ordinary file"), std::string::npos) << sentence();
  std::filesystem::remove(lock);
  std::filesystem::create_directory(lock);
  EXPECT_NE(sentence().find("no ordinary file"), std::string::npos) << sentence();
  std::filesystem::remove(lock);
  std::ofstream(lock) << "";
  std::filesystem::permissions(lock, std::filesystem::perms{0});
  if (geteuid() != 0) {
    EXPECT_NE(sentence().find("chmod u+rw"), std::string::npos) << sentence();
  } else {
    ASSERT_EQ(chown(lock.c_str(), 65534, 65534), 0);
    EXPECT_NE(sentence().find("belongs to another user"), std::string::npos) << sentence();
    EXPECT_TRUE(std::filesystem::exists(lock)) << "it is not ours to remove";
  }
  std::filesystem::remove(lock);
  EXPECT_EQ(sentence(), "nothing");
}

TEST_F(UnixListenerTest, FoldersThatOthersMayWriteToAreRefused) {
  std::filesystem::permissions(folder_, std::filesystem::perms{0777});
  EXPECT_THROW(UnixListener{path_}, ConfigError);
  std::filesystem::permissions(folder_, std::filesystem::perms{01777});  // as /tmp
  EXPECT_NO_THROW(UnixListener{path_});
  EXPECT_THROW(UnixListener{folder_ + "/none/cntrl"}, ConfigError);
}

TEST_F(UnixListenerTest, LinksAreNotFollowed) {
  std::filesystem::create_symlink(folder_ + "/victim", path_ + ".lock");
  EXPECT_THROW(UnixListener{path_}, ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/victim"));
  std::filesystem::remove(path_ + ".lock");
  std::filesystem::create_symlink(folder_ + "/victim", path_);
  EXPECT_THROW(UnixListener{path_}, ConfigError);
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

// One that listens, and never accepts anybody: a connection would wait for it for ever.
TEST_F(UnixListenerTest, ADeafListenerIsNotWaitedFor) {
  const UniqueFd deaf = foreign_socket(path_, 0);
  const UniqueFd waiting = connect_unix(path_);
  EXPECT_THROW(UnixListener{path_}, ConfigError);
  EXPECT_TRUE(std::filesystem::exists(path_));
  try {
    connect_unix(path_, 100);
    ADD_FAILURE() << "nobody let it in";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("lets nobody in"), std::string::npos) << error.what();
  }
}

TEST_F(UnixListenerTest, ASuccessorsSocketStays) {
  UnixListener first(path_);
  std::filesystem::remove(path_);
  const UniqueFd other = foreign_socket(path_, 1);
  first.close();
  EXPECT_TRUE(connect_unix(path_));
}

TEST_F(UnixListenerTest, OfTwoThatStartTogetherOneWins) {
  for (int round = 0; round < 100; ++round) {
    if (round % 2 == 0) foreign_socket(path_, 1).reset();
    std::atomic<int> wins{0};
    std::barrier start(3), end(3);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        start.arrive_and_wait();
        std::unique_ptr<UnixListener> mine;
        try {
          mine = std::make_unique<UnixListener>(path_);
          ++wins;
        } catch (const ConfigError&) {
        }
        end.arrive_and_wait();
        if (mine != nullptr) {
          EXPECT_TRUE(connect_unix(path_));
        }
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(wins, 1) << round;
    ASSERT_TRUE(std::filesystem::is_empty(folder_));
  }
}

}  // namespace
}  // namespace flashmob::vfio
