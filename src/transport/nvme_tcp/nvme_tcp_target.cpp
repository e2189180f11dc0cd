#include "transport/nvme_tcp/nvme_tcp_target.h"

#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/platform.h"
#include "fabrics/dhchap_crypto.h"
#include "fabrics/tls_psk.h"
#include "nvme/tcp.h"
#include "transport/nvme_tcp/context.h"
#include "transport/nvme_tcp/reactor.h"
#include "transport/nvme_tcp/target_directory.h"

namespace flashmob::transport {
namespace {

void require(bool fine, const char* key, const char* range) {
  if (!fine) throw ConfigError(std::string(key) + " of the NVMe/TCP target must be " + range);
}

// What the hosts' controllers can do: queues no longer than the target wants to keep buffers for.
ControllerConfig limited(const ControllerConfig& config, const NvmeTcpTargetOptions& options) {
  options.validate();
  ControllerConfig out = config;
  out.max_queue_entries = std::min(config.max_queue_entries, options.max_queue_entries);
  out.interrupt_vectors = 1;
  return out;
}

}  // namespace

void NvmeTcpTargetOptions::validate() const {
  require(max_connections >= 1, "max_connections", "at least 1");
  require(max_queue_entries >= 2 && max_queue_entries <= 4096, "max_queue_entries", "2...4096");
  require(in_capsule_bytes <= 65536 && in_capsule_bytes % 16 == 0, "in_capsule_bytes", "a multiple of 16 up to 65536");
  require(max_h2c_data_bytes >= nvme::tcp::kMinMaxH2cData && max_h2c_data_bytes <= (16u << 20) &&
              max_h2c_data_bytes % 4 == 0,
          "max_h2c_data_bytes", "a multiple of 4 from 4096 to 16777216");
  require(buffer_bytes >= (std::uint64_t{16} << 20) && buffer_bytes <= (std::uint64_t{64} << 30), "buffer_bytes",
          "16 MiB...64 GiB");
  require(queue_memory_bytes >= (std::uint64_t{16} << 20) && queue_memory_bytes <= (std::uint64_t{1} << 40),
          "queue_memory_bytes", "16 MiB...1 TiB");
  require(stall_timeout_ms >= 1, "stall_timeout_ms", "at least 1");
  require(idle_timeout_ms >= 1, "idle_timeout_ms", "at least 1");
  bool has_key = !tls_key.empty();
  if (has_key) fabrics::TlsKey{tls_key};
  for (const NvmeTcpHost& host : hosts) {
    if (!host.tls_key.empty()) fabrics::TlsKey{host.tls_key};
    has_key |= !host.tls_key.empty();
    require(!host.nqn.empty() && host.nqn.size() <= nvme::kNqnMaxLength, "the NQN of a host", "1...223 characters");
    // Their constructors say what is wrong.
    if (!host.dhchap_secret.empty()) fabrics::DhchapSecret{host.dhchap_secret};
    if (!host.dhchap_controller_secret.empty()) fabrics::DhchapSecret{host.dhchap_controller_secret};
    require(!host.dhchap_secret.empty() || host.dhchap_controller_secret.empty(), "the controller's secret for a host",
            "given together with the host's own");
  }
  if (has_key != (tls != TlsUse::off))
    throw ConfigError(
        has_key ? "an NVMe/TCP door with keys of TLS does not use it; give tls = \"required\" (or \"allowed\")"
                : "an NVMe/TCP door with TLS has no key; give tls_key, or hosts with keys of their own");
}

struct NvmeTcpTarget::Impl {
  Impl(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
       const NvmeTcpTargetOptions& options)
      : context(subsystem, engine, limited(config, options), options), reactor(context) {
    TargetDirectory::of_process().enter(context);
  }
  ~Impl() { TargetDirectory::of_process().leave(context); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void loop() {
    using clock = std::chrono::steady_clock;
    const EngineConfig& engine = context.engine.config().engine;
    const unsigned busy_threads = engine.units * (engine.workers + 1) + 1;
    const std::chrono::nanoseconds spin(fabrics::idle_spin_ns(context.options.idle_spin_ns, busy_threads));
    // With a timing model, completions come at their own times and there is nothing to wait for.
    context.gathers = spin.count() == 0 && !context.engine.is_timed();
    clock::time_point last_work = clock::now();
    clock::time_point before = last_work;
    std::uint64_t waited_ns = 0;
    while (!stopping.load(std::memory_order_acquire)) {
      bool worked = true;
      if (spin.count() == 0 || before - last_work >= spin)
        reactor.sleep();
      else
        worked = reactor.round();
      const clock::time_point now = clock::now();
      if (worked) {
        const auto took_ns = static_cast<std::uint64_t>((now - before).count());
        context.engine.add_door_work(took_ns - std::min(took_ns, reactor.waited_ns() - waited_ns));
        last_work = now;
      } else {
        cpu_pause();
      }
      waited_ns = reactor.waited_ns();
      before = now;
      count.store(static_cast<std::uint32_t>(reactor.connections()), std::memory_order_relaxed);
    }
  }

  TargetContext context;
  Reactor reactor;
  std::optional<Authenticator> authenticator;
  std::atomic<bool> stopping{false};
  std::atomic<std::uint32_t> count{0};
  std::thread thread;
};

NvmeTcpTarget::NvmeTcpTarget(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
                             const NvmeTcpTargetOptions& options)
    : impl_(std::make_unique<Impl>(subsystem, engine, config, options)) {}

NvmeTcpTarget::~NvmeTcpTarget() { stop(); }

std::uint16_t NvmeTcpTarget::port() const { return impl_->context.port; }

std::uint32_t NvmeTcpTarget::connections() const { return impl_->count.load(std::memory_order_relaxed); }

void NvmeTcpTarget::start() {
  if (impl_->thread.joinable()) return;
  impl_->stopping.store(false);
  impl_->authenticator.emplace([impl = impl_.get()] { impl->context.wake(); });
  impl_->context.authenticator = &*impl_->authenticator;
  try {
    impl_->thread = std::thread([impl = impl_.get()] {
      pthread_setname_np(pthread_self(), "fm-nvme-tcp");
      impl->loop();
    });
  } catch (const std::system_error& error) {
    throw ConfigError(std::string("the NVMe/TCP target gets no thread (") + error.what() +
                      "); raise the limit of processes (ulimit -u)");
  }
}

void NvmeTcpTarget::stop() {
  if (impl_->thread.joinable()) {
    impl_->stopping.store(true, std::memory_order_release);
    eventfd_write(impl_->context.wake_fd, 1);
    impl_->thread.join();
  }
  impl_->context.authenticator = nullptr;
  impl_->authenticator.reset();
  impl_->reactor.close_all();
  impl_->context.generated_keys.forget_all();
  impl_->count.store(0);
}

void NvmeTcpTarget::authenticate_by(Authenticator* authenticator) { impl_->context.authenticator = authenticator; }

bool NvmeTcpTarget::poll() {
  FLASHMOB_CHECK(!impl_->thread.joinable());
  const bool worked = impl_->reactor.round();
  impl_->count.store(static_cast<std::uint32_t>(impl_->reactor.connections()), std::memory_order_relaxed);
  return worked;
}

void NvmeTcpTarget::adopt(int socket) { impl_->reactor.adopt(socket); }

}  // namespace flashmob::transport
