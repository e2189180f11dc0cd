// An external ioengine for fio: --ioengine=external:libflashmob_fio.so --ssd=... A job is a queue pair, a thread of fio
// drives it by polling. Its interface is fio's own (ioengines.h), called on the job's thread, setup() on fio's main
// one.
//
// fio's headers are C that C++ compiles; functions that they declare are not called, because they would have C++'s
// names.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ssds.h"

#include "fio.h"
#include "optgroup.h"
// Macros of fio's.
#undef min
#undef max

namespace {

using flashmob::fio::SharedSsd;

struct Options {
  void* pad;  // fio takes an offset of 0 for none
  char* ssd;
  unsigned int nsid;
};

struct Job {
  std::shared_ptr<SharedSsd> ssd;
  flashmob::driver::BlockNamespace ns;
  std::unique_ptr<flashmob::driver::BlockQueue> queue;
  std::vector<io_u*> ended;  // and not yet told to fio
  std::vector<io_u*> told;  // by the last getevents()
};

Job& job_of(thread_data* td) { return *static_cast<Job*>(td->io_ops_data); }

// Everything that fails does so in one sentence; fio itself names the job.
template <class F>
bool tried(F&& step) {
  try {
    step();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flashmob: %s\n", error.what());
    return false;
  }
}

std::uint64_t largest_bytes(const thread_data* td) {
  return std::max({td->o.max_bs[DDIR_READ], td->o.max_bs[DDIR_WRITE], td->o.max_bs[DDIR_TRIM]});
}

extern ioengine_ops engine;

// Sizes of files are known before jobs begin: all of them stand for the namespace.
int setup(thread_data* td) {
  if (td->io_ops != &engine) {
    std::fprintf(stderr,
                 "flashmob: this fio's structures are others than those that the engine was built for; build it "
                 "once more with scripts/fio_engine.sh\n");
    return 1;
  }
  const auto& options = *static_cast<const Options*>(td->eo);
  return tried([&] {
    if (options.ssd == nullptr) throw std::runtime_error("ssd= is missing: name a profile, a file or a door");
    if (flashmob::fio::is_in_process(options.ssd) && td->o.use_thread == 0)
      throw std::runtime_error(std::string("ssd=") + options.ssd +
                               " lives in fio's process, which jobs would leave: add the option thread");
    const auto ssd = SharedSsd::open(options.ssd);
    const std::uint64_t bytes = ssd->block_namespace(options.nsid).bytes();
    // Threads share what is open; a process of its own opens it anew.
    if (td->o.use_thread != 0) {
      auto job = std::make_unique<Job>();
      job->ssd = ssd;
      td->io_ops_data = job.release();
    }
    unsigned int i = 0;
    fio_file* file = nullptr;
    for_each_file(td, file, i) {
      file->filetype = FIO_TYPE_BLOCK;
      file->real_file_size = bytes;
      fio_file_set_size_known(file);
    }
  })
             ? 0
             : 1;
}

int init(thread_data* td) {
  const auto& options = *static_cast<const Options*>(td->eo);
  return tried([&] {
    if (td->io_ops_data == nullptr) td->io_ops_data = new Job();
    Job& job = job_of(td);
    if (!job.ssd) job.ssd = SharedSsd::open(options.ssd);
    job.ns = job.ssd->block_namespace(options.nsid);
    job.queue = job.ssd->queue(td->o.iodepth, largest_bytes(td));
    job.ended.reserve(td->o.iodepth);
    job.told.reserve(td->o.iodepth);
  })
             ? 0
             : 1;
}

void cleanup(thread_data* td) {
  std::unique_ptr<Job> job(static_cast<Job*>(std::exchange(td->io_ops_data, nullptr)));
  if (job == nullptr) return;
  if (job->queue) {
    job->queue->abandon();
    job->ssd->release(std::move(job->queue));
  }
}

fio_q_status refused(io_u* io, int error) {
  io->error = error;
  return FIO_Q_COMPLETED;
}

fio_q_status queue(thread_data* td, io_u* io) {
  Job& job = job_of(td);
  const auto done = [&job, io](std::uint16_t status) {
    io->error = status == 0 ? 0 : EIO;
    io->resid = 0;
    job.ended.push_back(io);
  };
  const std::uint64_t block = job.ns.lba_bytes();
  const bool is_transfer = io->ddir == DDIR_READ || io->ddir == DDIR_WRITE || io->ddir == DDIR_TRIM;
  if (is_transfer && (io->offset % block != 0 || io->xfer_buflen % block != 0 || io->xfer_buflen == 0))
    return refused(io, EINVAL);
  if (is_transfer && (io->offset > job.ns.bytes() || io->xfer_buflen > job.ns.bytes() - io->offset))
    return refused(io, ENOSPC);
  const std::uint64_t lba = io->offset / block;
  auto* const data = static_cast<std::byte*>(io->xfer_buf);
  const bool is_sent = tried([&] {
    if (io->ddir == DDIR_READ)
      job.queue->read(job.ns, lba, data, io->xfer_buflen, done);
    else if (io->ddir == DDIR_WRITE)
      job.queue->write(job.ns, lba, data, io->xfer_buflen, done);
    else if (io->ddir == DDIR_TRIM)
      job.queue->deallocate(job.ns, lba, io->xfer_buflen / block, done);
    else
      job.queue->flush(job.ns.nsid, done);
  });
  return is_sent ? FIO_Q_QUEUED : refused(io, EIO);
}

int getevents(thread_data* td, unsigned int min, unsigned int max, const timespec* most) {
  Job& job = job_of(td);
  const std::uint64_t until_ns = most == nullptr ? UINT64_MAX
                                                 : flashmob::Clock::real().now_ns() +
                                                       static_cast<std::uint64_t>(most->tv_sec) * 1'000'000'000 +
                                                       static_cast<std::uint64_t>(most->tv_nsec);
  job.told.clear();
  const bool went_well = tried([&] {
    job.queue->wait_until([&] {
      return job.ended.size() >= std::max(1u, min) || min == 0 ||
             (until_ns != UINT64_MAX && flashmob::Clock::real().now_ns() >= until_ns);
    });
    if (min == 0) job.queue->poll();
  });
  if (!went_well) return -EIO;
  const std::size_t count = std::min<std::size_t>(max, job.ended.size());
  job.told.assign(job.ended.begin(), job.ended.begin() + static_cast<std::ptrdiff_t>(count));
  job.ended.erase(job.ended.begin(), job.ended.begin() + static_cast<std::ptrdiff_t>(count));
  return static_cast<int>(count);
}

io_u* event(thread_data* td, int index) { return job_of(td).told[static_cast<std::size_t>(index)]; }

// Files are names for the namespace: there is nothing to open.
int nothing(thread_data*, fio_file*) { return 0; }

fio_option options_table[] = {{.name = "ssd",
                               .lname = "flashmob SSD",
                               .type = FIO_OPT_STR_STORE,
                               .off1 = offsetof(Options, ssd),
                               .help = "a profile, a file of settings, vfio-user:PATH or nvme-tcp:ADDRESS:PORT/NQN",
                               .category = FIO_OPT_C_ENGINE,
                               .group = FIO_OPT_G_INVALID},
                              {.name = "nsid",
                               .lname = "namespace",
                               .type = FIO_OPT_INT,
                               .off1 = offsetof(Options, nsid),
                               .minval = 1,
                               .help = "the namespace's identifier",
                               .def = "1",
                               .category = FIO_OPT_C_ENGINE,
                               .group = FIO_OPT_G_INVALID},
                              {.name = nullptr}};

ioengine_ops engine = {.name = "flashmob",
                       .version = FIO_IOOPS_VERSION,
                       .flags = FIO_RAWIO | FIO_NOEXTEND | FIO_NODISKUTIL,
                       .setup = setup,
                       .init = init,
                       .queue = queue,
                       .getevents = getevents,
                       .event = event,
                       .cleanup = cleanup,
                       .open_file = nothing,
                       .close_file = nothing,
                       .invalidate = nothing,
                       .unlink_file = nothing,
                       .get_file_size = nothing,
                       .option_struct_size = sizeof(Options),
                       .options = options_table};

}  // namespace

extern "C" __attribute__((visibility("default"))) void get_ioengine(ioengine_ops** ops) { *ops = &engine; }
