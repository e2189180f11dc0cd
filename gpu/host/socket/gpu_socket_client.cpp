#include "host/socket/gpu_socket_client.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "flashmob/error.h"

namespace flashmob::gpu {
namespace {

// For a reply; a server on fibres may be busy with others.
constexpr std::chrono::seconds kPatience{30};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

GpuSocketClient::GpuSocketClient(const std::string& path)
    : address_("gpu-socket:" + path),
      socket_(vfio::connect_unix(path), wire::kMaxMessageBytes),
      stop_event_(eventfd(0, EFD_CLOEXEC)) {
  const wire::DescribeRequest request{wire::kVersion, 0};
  described_ = wire::read_description(call(wire::Command::describe, bytes_of(request)));
}

GpuSocketClient::~GpuSocketClient() { stop_watch(); }

void GpuSocketClient::lost(const std::string& why) {
  gone_ = true;
  throw std::runtime_error(address_ + ": the server is gone: " + why);
}

vfio::Message GpuSocketClient::call(wire::Command command, std::span<const std::byte> payload,
                                    std::span<const int> fds) {
  const std::lock_guard lock(mutex_);
  if (gone_) lost("it closed the connection");
  vfio::Header header{};
  header.message_id = next_id_++;
  header.command = static_cast<std::uint16_t>(command);
  header.flags = vfio::kTypeCommand;
  // Who turns us away has said so before it was asked, so a failure to send is no reason not to listen.
  socket_.send(header, payload, fds);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  vfio::Message reply;
  for (;;) {
    const vfio::MessageSocket::Received received = socket_.receive(reply);
    if (received == vfio::MessageSocket::Received::message) break;
    if (received != vfio::MessageSocket::Received::nothing) lost(socket_.error());
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !socket_.wait_readable(static_cast<int>(left.count()))) lost("it does not answer");
  }
  if ((reply.header.flags & vfio::kFlagTypeMask) != vfio::kTypeReply || reply.header.command != header.command)
    lost("it answers something else than it was asked");
  if ((reply.header.flags & vfio::kFlagError) != 0) throw ConfigError(address_ + ": " + wire::read_error(reply));
  return reply;
}

void GpuSocketClient::map(const wire::MapRequest& request, std::span<const int> fds) {
  call(wire::Command::map, bytes_of(request), fds);
}

void GpuSocketClient::map_file(const void* data, std::uint64_t bytes, int fd) {
  map({reinterpret_cast<std::uint64_t>(data), bytes, 0, wire::Kind::file, 0, {}}, {&fd, 1});
}

void GpuSocketClient::map_cuda(const void* data, std::uint64_t bytes, const simt::CudaMemoryHandle& handle) {
  map({reinterpret_cast<std::uint64_t>(data), bytes, 0, wire::Kind::cuda, 0, handle}, {});
}

void GpuSocketClient::unmap(const void* data, std::uint64_t bytes) {
  const wire::UnmapRequest request{reinterpret_cast<std::uint64_t>(data), bytes};
  call(wire::Command::unmap, bytes_of(request));
}

void GpuSocketClient::attach(std::span<const wire::QueuePair> pairs) {
  const wire::AttachRequest head{static_cast<std::uint32_t>(pairs.size()), 0};
  std::vector<std::byte> payload(sizeof(head) + pairs.size_bytes());
  std::memcpy(payload.data(), &head, sizeof(head));
  if (!pairs.empty()) std::memcpy(payload.data() + sizeof(head), pairs.data(), pairs.size_bytes());
  call(wire::Command::attach, payload);
}

void GpuSocketClient::leave() {
  stop_watch();
  if (gone_) return;
  try {
    call(wire::Command::leave, {});
  } catch (const std::exception&) {
    // It is gone, and with it whatever used the memory.
  }
  gone_ = true;
}

void GpuSocketClient::watch(std::function<void()> on_gone) {
  watch_ = std::thread([this, on_gone = std::move(on_gone)] {
    pollfd fds[] = {{socket_.fd(), POLLRDHUP, 0}, {stop_event_.get(), POLLIN, 0}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
    if (fds[1].revents != 0) return;
    gone_ = true;
    on_gone();
  });
}

void GpuSocketClient::stop_watch() {
  if (!watch_.joinable()) return;
  (void)eventfd_write(stop_event_.get(), 1);
  watch_.join();
}

}  // namespace flashmob::gpu
