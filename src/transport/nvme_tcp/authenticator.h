// The arithmetic of DH-HMAC-CHAP beside the loop: an exchange of 8,192 bits takes as long as hundreds of commands. One
// thread, begun when it is first needed; addresses take turns, so that one that asks without end delays the others by
// one step each, and at a low priority. submit() is the loop's; the rest is this thread's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "fabrics/dhchap.h"

namespace flashmob::transport {

// One step of an authentication. Belongs to the authenticator from submit() until it is done.
struct AuthenticationStep {
  std::shared_ptr<fabrics::DhchapController> controller;
  bool is_send = false;  // takes `message`; otherwise makes one
  fabrics::Bytes message;
  const void* address = nullptr;  // who asks
  bool failed = false;            // it threw: there was no memory for it, or we got something wrong
  std::atomic<bool> done{false};

  void run() noexcept;
};

class Authenticator {
 public:
  static constexpr std::size_t kMostWaiting = 64;
  // Of the thread. A tenth of what others get of a core: they hardly notice, and hosts get in while a machine is full
  // of work for long. At 19 it is a seventieth, where a handshake takes longer than hosts wait for it.
  static constexpr int kNice = 10;

  // `wake` is called on the thread, after each step.
  explicit Authenticator(std::function<void()> wake) : wake_(std::move(wake)) {}
  ~Authenticator();
  Authenticator(const Authenticator&) = delete;
  Authenticator& operator=(const Authenticator&) = delete;

  // False: too much waits already, or there is no thread to be had. The step may be tried again.
  bool submit(std::shared_ptr<AuthenticationStep> step);

 private:
  void work();
  std::shared_ptr<AuthenticationStep> next();

  const std::function<void()> wake_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<AuthenticationStep>> waiting_;
  const void* served_ = nullptr;  // the address of the latest step
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace flashmob::transport
