// A drive on a file whose disk takes as long as a test wants.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "nvme/features.h"
#include "transport/vfio_user/vfio_user_test_support.h"

namespace flashmob::transport {

// Stands for the disk: while it is shut, what waits for it waits here.
struct Gate {
  void shut() {
    const std::lock_guard lock(mutex);
    open = false;
  }
  void pass() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
    --waiting;
    ++passed;
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  bool wait_for_one() { return wait_for(1); }
  bool wait_for(int wanted) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), [&] { return waiting >= wanted; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  int waiting = 0;
  std::atomic<int> passed = 0;
};
// flush_test.cpp puts it before msync() and fdatasync(), and the other before fsync(), by which state beside the image
// is saved.
inline Gate gate, saves;

using nvme::NvmOpcode;

inline DeviceConfig on_file(const std::string& path, unsigned workers) {
  DeviceConfig config = test_device_config();
  config.subsystem.namespaces[0].media = "file:" + path;
  config.engine.workers = workers;
  return config;
}

class SlowDisk : public testing::TestWithParam<unsigned> {
 public:
  static constexpr std::uint64_t kData = 0x100000;
  static constexpr std::uint32_t kFua = 1u << 30;
  static constexpr std::uint16_t kFormatInProgress = 0x84;

 protected:
  SlowDisk() {
    first = host.start();
    second = host.create_queue(2);
  }
  ~SlowDisk() override {
    gate.let_go();
    saves.let_go();
    for (const char* const end : {"", ".flashmob", ".flashmob-redo"}) std::filesystem::remove(path + end);
  }
  static nvme::Sqe with_fua(NvmOpcode opcode, std::uint16_t cid) {
    nvme::Sqe sqe = TestHost::io(opcode, 8, kData, 8, cid);
    sqe.cdw12 |= kFua;
    return sqe;
  }

  // Until the namespace is being formatted, as `queue` has it.
  void wait_for_format(TestQueue& queue) {
    for (int i = 0; i < 5000; ++i)
      if ((host.run(queue, TestHost::io(NvmOpcode::read, 0, kData)) & 0x7FF) == kFormatInProgress) return;
    ADD_FAILURE() << "no Format has begun";
  }

  void expect_no_slots() {
    for (int i = 0; i < 5000 && device.engine.outstanding() != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(device.engine.outstanding(), 0u) << "slots came back";
  }

  std::string path = TestDevice::next_path() + ".img";
  TestDevice device{on_file(path, GetParam())};
  TestHost host{device.path};
  TestQueue first, second;
};

}  // namespace flashmob::transport
