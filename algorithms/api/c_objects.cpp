// The C interface: exchanges, contexts, communicators, segments and what can be done with an
// operation.
#include <optional>
#include <tutti/detail/check.hpp>
#include <utility>

#include "api/c_api.hpp"
#include "runtime/segment.hpp"
#include "runtime/subset.hpp"

using namespace tutti;
using tutti::detail::at_c_boundary;

// Numbers are the same in both languages, or one more where 0 says "not given".
static_assert(TUTTI_OK == static_cast<int>(Status::ok));
static_assert(TUTTI_IN_PROGRESS == static_cast<int>(Status::in_progress));
static_assert(TUTTI_TIMED_OUT == static_cast<int>(Status::timed_out));
static_assert(TUTTI_PEER_FAILED == static_cast<int>(Status::peer_failed));
static_assert(TUTTI_TRANSPORT_FAILED == static_cast<int>(Status::transport_failed));
static_assert(TUTTI_ABORTED == static_cast<int>(Status::aborted));
static_assert(TUTTI_ERROR_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument) + 1);
static_assert(TUTTI_ERROR_MISMATCH == static_cast<int>(ErrorCode::mismatch) + 1);
static_assert(TUTTI_ERROR_UNSUPPORTED == static_cast<int>(ErrorCode::unsupported) + 1);
static_assert(TUTTI_ERROR_LIMIT_EXCEEDED == static_cast<int>(ErrorCode::limit_exceeded) + 1);
static_assert(TUTTI_ERROR_NO_DEVICE == static_cast<int>(ErrorCode::no_device) + 1);
static_assert(TUTTI_ERROR_TIMED_OUT == static_cast<int>(ErrorCode::timed_out) + 1);
static_assert(TUTTI_ERROR_PEER_FAILED == static_cast<int>(ErrorCode::peer_failed) + 1);
static_assert(TUTTI_ERROR_SYSTEM == static_cast<int>(ErrorCode::system) + 1);
static_assert(TUTTI_CHECK_COLLECTIVE == static_cast<int>(CheckLevel::collective) + 1);
static_assert(TUTTI_CONNECT_CM == static_cast<int>(ConnectBy::cm) + 1);
static_assert(TUTTI_NOTIFY_FLAG == static_cast<int>(Notify::flag) + 1);
static_assert(TUTTI_WAIT_SPIN == static_cast<int>(WaitPolicy::spin) + 1);
static_assert(TUTTI_WAIT_YIELD == static_cast<int>(WaitPolicy::yield) + 1);
static_assert(TUTTI_WAIT_BLOCK == static_cast<int>(WaitPolicy::block) + 1);
static_assert(TUTTI_SHARED_WORDS == static_cast<int>(SharedNotifications::words) + 1);
static_assert(TUTTI_SHARED_REPUBLISHED == static_cast<int>(SharedNotifications::republished) + 1);
static_assert(TUTTI_TUNING_MODE_OFF == static_cast<int>(TuningMode::off) + 1);
static_assert(TUTTI_PLACEMENT_CYCLIC == static_cast<int>(Placement::cyclic) + 1);
static_assert(TUTTI_PLACEMENT_RANDOM == static_cast<int>(Placement::random) + 1);
static_assert(TUTTI_SCOPE_NODE == static_cast<int>(Scope::node));

namespace tutti::api {
namespace {

template <class Object>
Object& known(Object* object, const char* name) {
  if (object == nullptr) refuse(name, "NULL", "one that was made");
  return *object;
}

Timeout timeout_of(const std::string& name, std::int64_t nanoseconds, Timeout otherwise) {
  if (nanoseconds == 0) return otherwise;
  return Timeout(size_of(name, nanoseconds));
}

std::string text_of(const char* name, const char* text) {
  if (text == nullptr) refuse(name, "NULL", "a text");
  return text;
}

/// Wraps functions of the user, which know nothing of exceptions.
class UserExchange final : public Exchange {
 public:
  explicit UserExchange(const tutti_exchange_functions& functions) : functions_(functions) {
    if (functions.rank_count < 1)
      refuse("rank_count", std::to_string(functions.rank_count), "1 or more");
    (void)rank_of("rank", functions.rank, rank_count());
    if (functions.allgather == nullptr) refuse("allgather", "NULL", "a function");
    if (functions.barrier == nullptr) refuse("barrier", "NULL", "a function");
  }

  Rank self() const noexcept override { return Rank{static_cast<std::uint32_t>(functions_.rank)}; }
  std::uint32_t rank_count() const noexcept override {
    return static_cast<std::uint32_t>(functions_.rank_count);
  }

  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    // Sizes first: the functions need not compare them.
    const std::uint64_t bytes = mine.size();
    std::vector<std::uint64_t> sizes(rank_count());
    call("allgather", [&] {
      return functions_.allgather(functions_.context, &bytes, sizes.data(), sizeof bytes,
                                  timeout.count());
    });
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank)
      if (sizes[rank] != bytes)
        throw Error(ErrorCode::mismatch,
                    "allgather of the user's exchange: rank " + std::to_string(rank) + " brings " +
                        std::to_string(sizes[rank]) + " bytes, this one " + std::to_string(bytes));
    if (bytes == 0) return;
    call("allgather", [&] {
      return functions_.allgather(functions_.context, mine.data(), all.data(), mine.size(),
                                  timeout.count());
    });
  }

  void barrier(Timeout timeout) override {
    call("barrier", [&] { return functions_.barrier(functions_.context, timeout.count()); });
  }

 private:
  template <class F>
  void call(const char* what, F&& f) {
    const std::string name = std::string(what) + " of the user's exchange";
    if (failed_) throw Error(ErrorCode::peer_failed, name + ": not called after a failure");
    const tutti_status status = [&]() noexcept { return f(); }();
    failed_ = status != TUTTI_OK;
    if (status == TUTTI_TIMED_OUT) throw Error(ErrorCode::timed_out, name + ": timed out");
    if (failed_) throw Error(ErrorCode::peer_failed, name + " returned " + std::to_string(status));
  }

  const tutti_exchange_functions functions_;
  bool failed_ = false;
};

std::optional<bool> answer_if_given(const std::string& name, std::int32_t value) {
  if (value < 0 || value > TUTTI_NO)
    refuse(name, std::to_string(value), "TUTTI_DEFAULT, TUTTI_YES or TUTTI_NO");
  if (value == TUTTI_DEFAULT) return std::nullopt;
  return value == TUTTI_YES;
}

ContextOptions options_of(const tutti_context_options* given) {
  ContextOptions options;
  if (given == nullptr) return options;
  const tutti_context_options known = known_part(given, "options");
  require_reserved(known.reserved);
  if (known.device != nullptr) options.device = known.device;
  options.arena_bytes = size_if_given("arena_bytes", known.arena_bytes);
  options.check = enumerator_if_given("check", known.check, CheckLevel::collective);
  options.chunk_bytes = size_if_given("chunk_bytes", known.chunk_bytes);
  options.single_copy_bytes = size_if_given("single_copy_bytes", known.single_copy_bytes);
  options.register_buffers = answer_if_given("register_buffers", known.register_buffers);
  if (known.setup_timeout_ns != 0)
    options.setup_timeout = timeout_of("setup_timeout_ns", known.setup_timeout_ns, {});
  options.connect = enumerator_if_given("connect", known.connect, ConnectBy::cm);
  options.notify = enumerator_if_given("notify", known.notify, Notify::flag);
  options.wait = enumerator_if_given("wait", known.wait, WaitPolicy::block);
  options.shared_notifications = enumerator_if_given(
      "shared_notifications", known.shared_notifications, SharedNotifications::republished);
  options.placement = enumerator_if_given("placement", known.placement, Placement::random);
  options.domains_above = size_if_given("domains_above", known.domains_above);
  if (known.per_round.count != 0) options.per_round = counts_of("per_round", known.per_round);
  if (known.ranks_per_node.count != 0)
    options.ranks_per_node = counts_of("ranks_per_node", known.ranks_per_node);
  if (known.ranks_per_domain.count != 0)
    options.ranks_per_domain = counts_of("ranks_per_domain", known.ranks_per_domain);
  if (const auto most = size_if_given("connections_max", known.connections_max)) {
    if (*most > UINT32_MAX)
      refuse("connections_max", std::to_string(known.connections_max),
             "at most " + std::to_string(UINT32_MAX));
    options.connections_max = static_cast<std::uint32_t>(*most);
  }
  if (known.tuning_file != nullptr) options.tuning_file = known.tuning_file;
  options.tuning = enumerator_if_given("tuning", known.tuning, TuningMode::off);
  options.tuning_keeps_bits = answer_if_given("tuning_keeps_bits", known.tuning_keeps_bits);
  options.tuning_appends = answer_if_given("tuning_appends", known.tuning_appends);
  options.shrinkable = answer_if_given("shrinkable", known.shrinkable);
  if (known.detection_bound_ns != 0)
    options.detection_bound = timeout_of("detection_bound_ns", known.detection_bound_ns, {});
  return options;
}

}  // namespace
}  // namespace tutti::api

using namespace tutti::api;
using tutti::runtime::allocate;
using tutti::runtime::split;

const char* tutti_status_name(tutti_status status) {
  if (status == TUTTI_INVALID_ARGUMENT) return "invalid_argument";
  if (status == TUTTI_SETUP_FAILED) return "setup_failed";
  return name_of(static_cast<Status>(status));
}

// ---- Exchanges ----------------------------------------------------------------------------------

tutti_status tutti_tcp_exchange(const tutti_tcp_options* options, tutti_exchange** exchange,
                                tutti_failure* failure) {
  return at_c_boundary(failure, [&] {
    need_place(exchange, "exchange");
    TcpOptions known;
    if (options == nullptr) {
      known = TcpOptions::from_environment();
    } else {
      const tutti_tcp_options given = known_part(options, "options");
      if (given.rank_count < 1) refuse("rank_count", std::to_string(given.rank_count), "1 or more");
      known.rank_count = static_cast<std::uint32_t>(given.rank_count);
      known.rank = rank_of("rank", given.rank, known.rank_count);
      known.rendezvous = text_of("rendezvous", given.rendezvous);
      known.secret = text_of("secret", given.secret);
      known.timeout = timeout_of("timeout_ns", given.timeout_ns, known.timeout);
    }
    *exchange = new tutti_exchange{.owned = tcp_exchange(known)};
  });
}

tutti_status tutti_user_exchange(const tutti_exchange_functions* functions,
                                 tutti_exchange** exchange, tutti_failure* failure) {
  return at_c_boundary(failure, [&] {
    need_place(exchange, "exchange");
    *exchange = new tutti_exchange{
        .owned = std::make_unique<UserExchange>(known_part(functions, "functions"))};
  });
}

tutti_status tutti_exchange_free(tutti_exchange* exchange) {
  if (exchange == nullptr) return TUTTI_OK;
  if (exchange->owned == nullptr) return TUTTI_INVALID_ARGUMENT;
  detail::check(exchange->communicators == 0, "communicators are freed before their exchange",
                static_cast<std::uint64_t>(exchange->communicators));
  return free_object(exchange);
}

tutti_status tutti_run_local(int32_t rank_count,
                             int (*body)(tutti_exchange* exchange, void* context), void* context,
                             tutti_local_result* results, tutti_failure* failure) {
  return at_c_boundary(failure, [&] {
    if (rank_count < 1) refuse("rank_count", std::to_string(rank_count), "1 or more");
    if (body == nullptr) refuse("body", "NULL", "a function");
    const std::vector<LocalResult> ended =
        run_local({.rank_count = static_cast<std::uint32_t>(rank_count)}, [&](Exchange& exchange) {
          tutti_exchange borrowed{.owned = nullptr, .exchange = &exchange};
          return [&]() noexcept { return body(&borrowed, context); }();
        });
    if (results == nullptr) return;
    for (std::size_t rank = 0; rank < ended.size(); ++rank)
      results[rank] = {.exit_status = ended[rank].exit_status, .signal = ended[rank].signal};
  });
}

// ---- Contexts -----------------------------------------------------------------------------------

tutti_status tutti_context_create(const tutti_context_options* options, tutti_context** context,
                                  tutti_failure* failure) {
  return at_c_boundary(failure, [&] {
    need_place(context, "context");
    *context = new tutti_context{.value = Context(options_of(options))};
  });
}

tutti_status tutti_context_free(tutti_context* context) {
  return free_object(context);
}

size_t tutti_device_name(const tutti_context* context, char* text, size_t bytes) {
  return write_text(text, bytes,
                    [&] { return context == nullptr ? "" : context->value.device_name(); });
}

size_t tutti_device_choice(const tutti_context* context, char* text, size_t bytes) {
  return write_text(text, bytes,
                    [&] { return context == nullptr ? "" : context->value.device_choice(); });
}

// ---- Communicators ------------------------------------------------------------------------------

tutti_status tutti_communicator_create(tutti_context* context, tutti_exchange* exchange,
                                       tutti_communicator** communicator, tutti_failure* failure) {
  return at_c_boundary(failure, [&] {
    need_place(communicator, "communicator");
    Context& known_context = known(context, "context").value;
    Exchange& known_exchange = *known(exchange, "exchange").exchange;
    *communicator = new tutti_communicator{.value = Communicator(known_context, known_exchange),
                                           .exchange = exchange};
    ++exchange->communicators;
  });
}

tutti_status tutti_communicator_free(tutti_communicator* communicator) {
  if (communicator != nullptr && communicator->exchange != nullptr)
    --communicator->exchange->communicators;
  return free_object(communicator);
}

tutti_status tutti_communicator_split(tutti_communicator* communicator, int32_t color, int64_t key,
                                      tutti_communicator** part, tutti_failure* failure) {
  if (part != nullptr) *part = nullptr;  // whatever else is wrong
  return at_c_boundary(failure, [&] {
    Communicator& whole = known(communicator, "communicator").value;
    std::optional<std::uint32_t> asked;
    const std::optional<Error> error = error_of("split", [&] {
      need_place(part, "part");
      if (color < TUTTI_NO_COLOR)
        refuse("color", std::to_string(color), "0 or more, or TUTTI_NO_COLOR");
      if (color != TUTTI_NO_COLOR) asked = static_cast<std::uint32_t>(color);
    });
    std::optional<Communicator> made = split(whole, asked, key, error);
    *part = made ? new tutti_communicator{.value = std::move(*made)} : nullptr;
  });
}

tutti_status tutti_communicator_shrink(tutti_communicator* communicator, int64_t timeout_ns,
                                       tutti_communicator** survivors, tutti_failure* failure) {
  if (survivors != nullptr) *survivors = nullptr;  // whatever else is wrong
  return at_c_boundary(failure, [&] {
    Communicator& whole = known(communicator, "communicator").value;
    need_place(survivors, "survivors");
    *survivors = new tutti_communicator{.value = whole.shrink(Timeout(timeout_ns))};
  });
}

int32_t tutti_rank(const tutti_communicator* communicator) {
  return communicator == nullptr ? -1 : static_cast<int32_t>(index_of(communicator->value.rank()));
}

int32_t tutti_rank_count(const tutti_communicator* communicator) {
  return communicator == nullptr ? -1 : static_cast<int32_t>(communicator->value.rank_count());
}

int32_t tutti_node(const tutti_communicator* communicator) {
  return communicator == nullptr ? -1 : static_cast<int32_t>(index_of(communicator->value.node()));
}

int32_t tutti_node_count(const tutti_communicator* communicator) {
  return communicator == nullptr ? -1 : static_cast<int32_t>(communicator->value.node_count());
}

size_t tutti_node_remark(const tutti_communicator* communicator, char* text, size_t bytes) {
  return write_text(text, bytes, [&] {
    return communicator == nullptr ? std::string() : communicator->value.node_remark();
  });
}

tutti_status tutti_abort(tutti_communicator* communicator) {
  if (communicator == nullptr) return TUTTI_INVALID_ARGUMENT;
  communicator->value.abort();
  return TUTTI_OK;
}

tutti_status tutti_synchronize(tutti_communicator* communicator, tutti_failure* failure) {
  return at_c_boundary(failure, [&] { known(communicator, "communicator").value.synchronize(); });
}

tutti_status tutti_cancel(tutti_communicator* communicator, tutti_failure* failure) {
  return at_c_boundary(failure, [&] { known(communicator, "communicator").value.cancel(); });
}

tutti_status tutti_progress(tutti_communicator* communicator) {
  if (communicator == nullptr) return TUTTI_INVALID_ARGUMENT;
  return static_cast<tutti_status>(communicator->value.progress());
}

size_t tutti_report(const tutti_communicator* communicator, int32_t as_json, char* text,
                    size_t bytes) {
  return write_text(text, bytes, [&] {
    return communicator == nullptr
               ? std::string()
               : communicator->value.report(as_json != 0 ? ReportFormat::json : ReportFormat::text);
  });
}

tutti_status tutti_get_failure(const tutti_communicator* communicator, tutti_failure* failure) {
  if (communicator == nullptr) return TUTTI_INVALID_ARGUMENT;
  const Failure& first = communicator->value.failure();
  const auto status = static_cast<tutti_status>(first.status);
  if (failure != nullptr) {
    *failure = {};
    failure->status = status;
    failure->peer = first.peer == no_rank ? -1 : static_cast<int32_t>(index_of(first.peer));
    failure->system_errno = first.system_errno;
    failure->operation = first.operation;
    failure->sequence = static_cast<int64_t>(first.sequence);
    failure->round = static_cast<int32_t>(first.round);
    failure->completion = static_cast<int32_t>(first.completion);
    detail::set_text(*failure, first.text);
  }
  return status;
}

// ---- Segments -----------------------------------------------------------------------------------

tutti_status tutti_segment_allocate(tutti_communicator* communicator, int64_t bytes, int32_t scope,
                                    tutti_segment** segment, tutti_failure* failure) {
  if (segment != nullptr) *segment = nullptr;  // whatever else is wrong
  return at_c_boundary(failure, [&] {
    Communicator& ranks = known(communicator, "communicator").value;
    std::size_t size = 0;
    Scope whose{};
    std::optional<Error> error = error_of("allocate", [&] {
      need_place(segment, "segment");
      size = size_of("bytes", bytes);
      whose = enumerator_of("scope", scope, Scope::node);
    });
    *segment = new tutti_segment{.value = allocate(ranks, size, whose, std::move(error))};
  });
}

void* tutti_segment_data(const tutti_segment* segment) {
  return segment == nullptr ? nullptr : segment->value.data();
}

int64_t tutti_segment_size(const tutti_segment* segment) {
  return segment == nullptr ? -1 : static_cast<int64_t>(segment->value.size());
}

tutti_status tutti_segment_free(tutti_segment* segment) {
  return free_object(segment);
}

// ---- Operations ---------------------------------------------------------------------------------

tutti_status tutti_start(tutti_operation* operation) {
  if (operation == nullptr) return TUTTI_INVALID_ARGUMENT;
  return static_cast<tutti_status>(operation->value.start());
}

tutti_status tutti_start_on(tutti_operation* operation, const void* source, void* target) {
  if (operation == nullptr) return TUTTI_INVALID_ARGUMENT;
  return static_cast<tutti_status>(operation->value.start(source, target));
}

tutti_status tutti_test(tutti_operation* operation) {
  if (operation == nullptr) return TUTTI_INVALID_ARGUMENT;
  return static_cast<tutti_status>(operation->value.test());
}

tutti_status tutti_wait(tutti_operation* operation, int64_t timeout_ns) {
  if (operation == nullptr) return TUTTI_INVALID_ARGUMENT;
  return static_cast<tutti_status>(operation->value.wait(Timeout(timeout_ns)));
}

int32_t tutti_in_flight(const tutti_operation* operation) {
  return operation != nullptr && operation->value.in_flight() ? 1 : 0;
}

tutti_status tutti_operation_free(tutti_operation* operation) {
  return free_object(operation);
}

tutti_status tutti_set_label(tutti_operation* operation, const char* label) {
  if (operation == nullptr) return TUTTI_INVALID_ARGUMENT;
  operation->value.set_label(label == nullptr ? "" : label);
  return TUTTI_OK;
}

size_t tutti_describe(const tutti_operation* operation, char* text, size_t bytes) {
  return write_text(text, bytes,
                    [&] { return operation == nullptr ? "" : operation->value.describe(); });
}

size_t tutti_algorithm(const tutti_operation* operation, char* text, size_t bytes) {
  return write_text(text, bytes,
                    [&] { return operation == nullptr ? "" : operation->value.algorithm(); });
}

size_t tutti_explanation(const tutti_operation* operation, char* text, size_t bytes) {
  return write_text(text, bytes,
                    [&] { return operation == nullptr ? "" : operation->value.explanation(); });
}

size_t tutti_per_round(const tutti_operation* operation, int32_t* per_round, size_t room) {
  std::vector<std::uint32_t> rounds;
  (void)at_c_boundary(nullptr, [&] {
    if (operation != nullptr) rounds = operation->value.per_round();
  });
  for (std::size_t i = 0; per_round != nullptr && i < std::min(room, rounds.size()); ++i)
    per_round[i] = static_cast<int32_t>(rounds[i]);
  return rounds.size();
}

int32_t tutti_notify(const tutti_operation* operation) {
  return operation == nullptr ? TUTTI_DEFAULT : static_cast<int32_t>(operation->value.notify()) + 1;
}

int64_t tutti_covered_elements(const tutti_operation* operation) {
  return operation == nullptr ? -1
                              : static_cast<int64_t>(operation->value.coverage().element_count);
}

int32_t tutti_covered_ranks(const tutti_operation* operation) {
  return operation == nullptr ? -1 : static_cast<int32_t>(operation->value.coverage().rank_count);
}

int64_t tutti_staleness(const tutti_operation* operation) {
  return operation == nullptr ? -1 : static_cast<int64_t>(operation->value.staleness());
}
