// A program that knows libibverbs alone.  It opens the devices that are named, all at once, and
// writes from one queue pair of each to another of it, the devices in turn.  A line for each says
// in which libraries its data path is, another one how long a write takes.
//   forwarded WRITES DEVICE...
// Status 0: everything has arrived; 1: not; 2: usage.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { devices_max = 4, writes_max = 100000, port = 1 };

struct device {
  const char* name;
  struct ibv_context* context;
  struct ibv_pd* domain;
  struct ibv_comp_channel* channel;
  struct ibv_cq* queue;
  struct ibv_qp* pair[2];  // the first writes, the second receives
  struct ibv_mr* region;
  uint64_t words[2];  // source, target
  int64_t* took_ns;
};

static _Noreturn void fail(const struct device* device, const char* what) {
  fprintf(stderr, "forwarded: %s: %s\n", device->name, what);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// The one of an IPv4 address, as others choose it, or the first.
static int gid_of(struct ibv_context* context, union ibv_gid* gid) {
  static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff};
  for (int index = 0; index < 8; ++index)
    if (ibv_query_gid(context, port, index, gid) == 0 && memcmp(gid->raw, ipv4, sizeof ipv4) == 0)
      return index;
  return ibv_query_gid(context, port, 0, gid) == 0 ? 0 : -1;
}

static void open_named(struct device* device) {
  struct ibv_device** const list = ibv_get_device_list(NULL);
  for (int i = 0; list && list[i]; ++i)
    if (strcmp(ibv_get_device_name(list[i]), device->name) == 0)
      device->context = ibv_open_device(list[i]);
  if (list) ibv_free_device_list(list);
  if (!device->context) fail(device, "is not in the list of libibverbs, or cannot be opened");
}

static void connect_to(struct device* device, int self) {
  struct ibv_port_attr attributes;
  union ibv_gid gid;
  if (ibv_query_port(device->context, port, &attributes) != 0) fail(device, "has no port 1");
  const int gid_index = gid_of(device->context, &gid);
  if (gid_index < 0) fail(device, "has no GID");
  struct ibv_qp *const own = device->pair[self], *const other = device->pair[1 - self];
  struct ibv_qp_attr to_init = {
      .qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  struct ibv_qp_attr to_receive = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_256,
      .dest_qp_num = other->qp_num,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1,
                  .dlid = attributes.lid,
                  .port_num = port,
                  .grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 1}}};
  struct ibv_qp_attr to_send = {
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  if (ibv_modify_qp(own, &to_init,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    fail(device, "a queue pair does not go to INIT");
  if (ibv_modify_qp(own, &to_receive,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    fail(device, "a queue pair does not go to RTR");
  if (ibv_modify_qp(own, &to_send,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    fail(device, "a queue pair does not go to RTS");
}

static void make(struct device* device, const char* name, int writes) {
  *device = (struct device){.name = name};
  open_named(device);
  device->took_ns = calloc((size_t)writes, sizeof device->took_ns[0]);
  device->domain = ibv_alloc_pd(device->context);
  device->channel = ibv_create_comp_channel(device->context);
  if (!device->took_ns || !device->domain || !device->channel) fail(device, "no memory");
  device->queue = ibv_create_cq(device->context, 16, NULL, device->channel, 0);
  device->region = ibv_reg_mr(device->domain, device->words, sizeof device->words,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!device->queue || !device->region) fail(device, "no completion queue or no memory region");
  for (int i = 0; i < 2; ++i) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = device->queue,
        .recv_cq = device->queue,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    device->pair[i] = ibv_create_qp(device->domain, &attributes);
    if (!device->pair[i]) fail(device, "no queue pair");
  }
  for (int i = 0; i < 2; ++i) connect_to(device, i);
}

// The file that the function is in to which the pointer points; ISO C converts none to void*.
static const char* library_of(const void* pointer) {
  void* function;
  memcpy(&function, pointer, sizeof function);
  Dl_info info;
  return dladdr(function, &info) && info.dli_fname ? info.dli_fname : "nowhere";
}

static void say_where(const struct device* device) {
  const struct ibv_context_ops* const ops = &device->context->ops;
  printf("%s: post_send in %s, post_recv in %s, poll_cq in %s, req_notify_cq in %s\n", device->name,
         library_of(&ops->post_send), library_of(&ops->post_recv), library_of(&ops->poll_cq),
         library_of(&ops->req_notify_cq));
}

// Sleeps until the queue says something.
static void await_event(struct device* device) {
  struct pollfd waited = {.fd = device->channel->fd, .events = POLLIN};
  if (poll(&waited, 1, 20000) != 1) fail(device, "no event of the completion queue within 20 s");
  struct ibv_cq* queue = NULL;
  void* ignored = NULL;
  if (ibv_get_cq_event(device->channel, &queue, &ignored) != 0 || queue != device->queue)
    fail(device, "the event is of another completion queue");
  ibv_ack_cq_events(queue, 1);
}

// Both completions of a write, one of each side.
static void complete(struct device* device, int write, int64_t begin) {
  for (int sides = 0; sides != 3;) {
    struct ibv_wc completion;
    const int found = ibv_poll_cq(device->queue, 1, &completion);
    if (found < 0 || (found == 1 && completion.status != IBV_WC_SUCCESS))
      fail(device, "a completion is an error");
    if (found == 0 && now_ns() - begin > INT64_C(20000000000))
      fail(device, "a write has not completed within 20 s");
    if (found == 0) continue;
    sides |= completion.wr_id == 2 ? 2 : 1;
    if (completion.wr_id == 2 && completion.imm_data != (uint32_t)write)
      fail(device, "another immediate value has arrived");
  }
}

static void write_once(struct device* device, int write) {
  struct ibv_recv_wr receive = {.wr_id = 2}, *bad_receive;
  if (ibv_post_recv(device->pair[1], &receive, &bad_receive) != 0) fail(device, "ibv_post_recv");
  const int by_event = write == 0;
  if (by_event && ibv_req_notify_cq(device->queue, 0) != 0) fail(device, "ibv_req_notify_cq");
  device->words[0] = UINT64_C(0x0102030405060708) * (uint64_t)(write + 1);
  struct ibv_sge piece = {(uintptr_t)&device->words[0], 8, device->region->lkey};
  struct ibv_send_wr request = {.wr_id = 1,
                                .sg_list = &piece,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                .send_flags = IBV_SEND_SIGNALED,
                                .imm_data = (uint32_t)write,
                                .wr.rdma = {(uintptr_t)&device->words[1], device->region->rkey}};
  struct ibv_send_wr* bad_request;
  const int64_t begin = now_ns();
  if (ibv_post_send(device->pair[0], &request, &bad_request) != 0) fail(device, "ibv_post_send");
  if (by_event) await_event(device);
  complete(device, write, begin);
  device->took_ns[write] = now_ns() - begin;
  if (device->words[1] != device->words[0]) fail(device, "other bytes have arrived");
}

static int compare(const void* one, const void* other) {
  const int64_t a = *(const int64_t*)one, b = *(const int64_t*)other;
  return (a > b) - (a < b);
}

static void take_down(struct device* device) {
  for (int i = 0; i < 2; ++i)
    if (ibv_destroy_qp(device->pair[i]) != 0) fail(device, "ibv_destroy_qp");
  if (ibv_dereg_mr(device->region) != 0) fail(device, "ibv_dereg_mr");
  if (ibv_destroy_cq(device->queue) != 0) fail(device, "ibv_destroy_cq");
  if (ibv_destroy_comp_channel(device->channel) != 0) fail(device, "ibv_destroy_comp_channel");
  if (ibv_dealloc_pd(device->domain) != 0) fail(device, "ibv_dealloc_pd");
  if (ibv_close_device(device->context) != 0) fail(device, "ibv_close_device");
  free(device->took_ns);
}

int main(int argc, char** argv) {
  const int writes = argc > 1 ? atoi(argv[1]) : 0, count = argc - 2;
  if (writes < 1 || writes > writes_max || count < 1 || count > devices_max) {
    fprintf(stderr, "usage: forwarded WRITES DEVICE...\n  WRITES from 1 to %d, up to %d devices\n",
            writes_max, devices_max);
    return 2;
  }
  static struct device devices[devices_max];
  for (int i = 0; i < count; ++i) make(&devices[i], argv[i + 2], writes);
  for (int write = 0; write < writes; ++write)
    for (int i = 0; i < count; ++i) write_once(&devices[i], write);
  for (int i = 0; i < count; ++i) {
    say_where(&devices[i]);
    qsort(devices[i].took_ns, (size_t)writes, sizeof devices[i].took_ns[0], compare);
    printf("%s: %d writes, median %lld ns\n", devices[i].name, writes,
           (long long)devices[i].took_ns[writes / 2]);
  }
  for (int i = 0; i < count; ++i) take_down(&devices[i]);
  return 0;
}
