%% @private
%% The stubs of the native library; nothing else. What they take and give is checked by the
%% modules that call them.
-module(wasmtime_nif).

-export([features/0, version/0, live/0, classes_and_kinds/0]).
-export([module_compile/2, module_wat2wasm/1, module_validate/2, module_serialize/2,
         module_deserialize/3, module_deserialize_file/4, module_imports/1, module_exports/1,
         module_options/1, module_kind/1, module_function_imports/1, pool_info/1]).
-export([instance_new/3, instance_new_dirty/3, instance_new_io/3, instance_prepare/2, instance_from/2,
         instance_from_dirty/2, instance_from_io/2, instance_start/3, instance_interrupt/1, instance_destroy/1,
         instance_destroy_dirty/1, instance_mourn/2, instance_info/1, instance_function/2]).
-export([call_start/5, call_poll/1, call_sleep/2, call_resume/3, call_async/5, call_guard/2,
         call_abandon/1, call_inside/5, call_await/3, host_reply/3, host_claim/2, host_pending/2, output_read/1, output_read_dirty/1]).
-export([memory_read/4, memory_read_dirty/4, memory_write/4, memory_write_dirty/4,
         memory_size/2,
         memory_size_dirty/2]).
-export([global_get/2, global_set/3, table_size/2, table_get/3, table_set/4, table_grow/4]).
-export([call_ref_start/5, ref_info/1, extern_new/2, extern_data/1, extern_data_dirty/1,
         func_ref/2, struct_new/3, struct_get/2, struct_set/3, array_new/3, array_len/1,
         array_get/2, array_set/3, heap_collect/1, instance_fuel/1, access_wait/1]).
-export([stream_send/2, stream_send_dirty/2, stream_close/1]).
-export([preinit_begin/2, preinit_finish/4]).
-export([cache_entry/2, cache_prepare/2, cache_lock/2, cache_unlock/1, cache_store/4]).

-nifs([features/0, version/0, live/0, classes_and_kinds/0]).
-nifs([module_compile/2, module_wat2wasm/1, module_validate/2, module_serialize/2,
       module_deserialize/3, module_deserialize_file/4, module_imports/1, module_exports/1,
       module_options/1, module_kind/1, module_function_imports/1, pool_info/1]).
-nifs([instance_new/3, instance_new_dirty/3, instance_new_io/3, instance_prepare/2, instance_from/2,
         instance_from_dirty/2, instance_from_io/2, instance_start/3, instance_interrupt/1, instance_destroy/1,
         instance_destroy_dirty/1, instance_mourn/2, instance_info/1, instance_function/2]).
-nifs([call_start/5, call_poll/1, call_sleep/2, call_resume/3, call_async/5, call_guard/2,
         call_abandon/1, call_inside/5, call_await/3, host_reply/3, host_claim/2, host_pending/2, output_read/1, output_read_dirty/1]).
-nifs([memory_read/4, memory_read_dirty/4, memory_write/4, memory_write_dirty/4, memory_size/2,
       memory_size_dirty/2]).
-nifs([global_get/2, global_set/3, table_size/2, table_get/3, table_set/4, table_grow/4]).
-nifs([call_ref_start/5, ref_info/1, extern_new/2, extern_data/1, extern_data_dirty/1,
       func_ref/2, struct_new/3, struct_get/2, struct_set/3, array_new/3, array_len/1,
       array_get/2, array_set/3, heap_collect/1, instance_fuel/1, access_wait/1]).
-nifs([stream_send/2, stream_send_dirty/2, stream_close/1]).
-nifs([preinit_begin/2, preinit_finish/4]).
-nifs([cache_entry/2, cache_prepare/2, cache_lock/2, cache_unlock/1, cache_store/4]).

%% Panics on demand, in a build for tests of what catches them.
-ifdef(INJECT_PANICS).
-export([panic_points/0, panic_arm/2, panic_left/1]).
-nifs([panic_points/0, panic_arm/2, panic_left/1]).
-endif.

-on_load(load/0).

%% The version of the border between these stubs and the library. Both sides count it up when a
%% stub, an option or a message changes; a library of another version does not load.
-define(ABI, 11).

-type error() :: {error, wasmtime_error:t()}.
-type mod() :: reference().
-type instance() :: reference().
-type preinit() :: reference().
-type ref() :: reference().

load() ->
    Path = filename:join(priv(), "wasmtime_nif"),
    case erlang:load_nif(Path, {abi, ?ABI}) of
        ok ->
            ok;
        {error, {Reason, Text}} ->
            {error, {Reason, lists:flatten(refused(Reason, Path, Text))}}
    end.

%% Why the module is not loaded. Its code is what the library's threads and instances were made with:
%% whoever wants another must start another node.
refused(upgrade, _, _) ->
    "the native library cannot be replaced while a node runs: what runs goes on with the module that "
    "was loaded first; restart the node to load another";
refused(_, Path, Text) ->
    io_lib:format("~ts.so does not load; rebuild it with `rebar3 clean && rebar3 compile` (~ts)",
                  [Path, Text]).

priv() ->
    case code:priv_dir(wasmtime) of
        {error, bad_name} ->
            filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "priv");
        Dir ->
            Dir
    end.

-define(STUB, erlang:nif_error(not_loaded)).

-spec features() -> #{atom() => boolean()}.
features() -> ?STUB.

-spec version() -> binary().
version() -> ?STUB.

-spec live() -> #{atom() => non_neg_integer()}.
live() -> ?STUB.

-spec classes_and_kinds() -> [{class | kind, atom()}].
classes_and_kinds() -> ?STUB.

-spec module_compile(binary(), map()) -> {ok, mod()} | error().
module_compile(_Wasm, _Opts) -> ?STUB.

-spec module_wat2wasm(binary()) -> {ok, binary()} | error().
module_wat2wasm(_Text) -> ?STUB.

-spec module_validate(binary(), map()) -> ok | error().
module_validate(_Wasm, _Opts) -> ?STUB.

-spec module_serialize(mod(), binary() | undefined) -> {ok, binary()} | error().
module_serialize(_Mod, _Key) -> ?STUB.

-spec module_deserialize(binary(), map(), binary() | undefined) -> {ok, mod()} | error().
module_deserialize(_Bin, _Opts, _Key) -> ?STUB.

-spec module_deserialize_file(binary(), map(), metadata | full, binary() | undefined) ->
          {ok, mod()} | error().
module_deserialize_file(_Path, _Opts, _Check, _Key) -> ?STUB.

-spec module_imports(mod()) -> [{binary(), binary(), atom()}].
module_imports(_Mod) -> ?STUB.

-spec module_exports(mod()) -> [{binary(), atom()}].
module_exports(_Mod) -> ?STUB.

-spec module_function_imports(mod()) ->
          [{{binary(), binary()}, {[binary()], [binary()]}}].
module_function_imports(_Mod) -> ?STUB.

-spec module_options(mod()) -> map().
module_options(_Mod) -> ?STUB.

-spec module_kind(mod()) -> module | component.
module_kind(_Mod) -> ?STUB.

-spec pool_info(mod()) -> #{atom() => non_neg_integer()}.
pool_info(_Mod) -> ?STUB.

-spec instance_new(mod(), map(), reference()) -> term().
instance_new(_Mod, _Opts, _Id) -> ?STUB.

-spec instance_new_dirty(mod(), map(), reference()) -> term().
instance_new_dirty(_Mod, _Opts, _Id) -> ?STUB.

-spec instance_new_io(mod(), map(), reference()) -> term().
instance_new_io(_Mod, _Opts, _Id) -> ?STUB.

-spec instance_prepare(mod(), map()) -> {ok, reference()} | error().
instance_prepare(_Mod, _Opts) -> ?STUB.

-spec instance_from(reference(), reference()) -> term().
instance_from(_Template, _Id) -> ?STUB.

-spec instance_from_dirty(reference(), reference()) -> term().
instance_from_dirty(_Template, _Id) -> ?STUB.

-spec instance_from_io(reference(), reference()) -> term().
instance_from_io(_Template, _Id) -> ?STUB.

-spec instance_start(instance(), timeout(), reference() | undefined) -> term().
instance_start(_Inst, _Timeout, _Ref) -> ?STUB.

-spec instance_interrupt(instance()) -> ok | not_running.
instance_interrupt(_Inst) -> ?STUB.

-spec instance_destroy(instance()) -> ok | wait | dirty | error().
instance_destroy(_Inst) -> ?STUB.

-spec instance_destroy_dirty(instance()) -> ok | wait.
instance_destroy_dirty(_Inst) -> ?STUB.

-spec instance_mourn(instance(), reference()) -> ok | wait.
instance_mourn(_Inst, _Ref) -> ?STUB.

-spec instance_function(instance(), binary()) -> {[binary()], [binary()]} | undefined.
instance_function(_Inst, _Name) -> ?STUB.

-spec instance_info(instance()) -> map().
instance_info(_Inst) -> ?STUB.

-spec call_start(instance(), binary(), [term()], map(), reference() | undefined) -> term().
call_start(_Inst, _Name, _Args, _Opts, _Ref) -> ?STUB.

-spec call_inside(instance(), binary(), [term()], reference() | undefined, instance()) -> term().
call_inside(_Inst, _Name, _Args, _Ref, _Outer) -> ?STUB.

-spec call_abandon(reference()) -> ok | error().
call_abandon(_Call) -> ?STUB.

-spec call_poll(reference()) -> term().
call_poll(_Call) -> ?STUB.

-spec call_sleep(reference(), reference()) -> wait | again.
call_sleep(_Call, _Ref) -> ?STUB.

-spec call_resume(reference(), non_neg_integer(), {ok, [term()]} | {error, binary()}) -> term().
call_resume(_Call, _HostId, _Answer) -> ?STUB.

-spec call_async(instance(), binary(), [term()], map(), reference()) ->
          {ok, pos_integer()} | {drive, pos_integer(), reference()} | error().
call_async(_Inst, _Name, _Args, _Opts, _Id) -> ?STUB.

-spec call_guard(reference(), pid()) -> ok.
call_guard(_Call, _Driver) -> ?STUB.

-spec call_await(instance(), non_neg_integer(), timeout()) ->
          wait | {drive, reference()} | other | itself | none | told.
call_await(_Inst, _Job, _Limit) -> ?STUB.

-spec host_claim(instance(), non_neg_integer()) -> boolean().
host_claim(_Inst, _HostId) -> ?STUB.

-spec host_pending(instance(), non_neg_integer()) -> boolean().
host_pending(_Inst, _HostId) -> ?STUB.

-spec host_reply(instance(), term(), {ok, [term()]} | {error, binary()}) -> ok.
host_reply(_Inst, _HostId, _Reply) -> ?STUB.

-spec output_read(instance()) ->
          dirty | {ok, {binary(), binary(), {non_neg_integer(), non_neg_integer()}}} | error().
output_read(_Inst) -> ?STUB.

-spec output_read_dirty(instance()) ->
          {ok, {binary(), binary(), {non_neg_integer(), non_neg_integer()}}} | error().
output_read_dirty(_Inst) -> ?STUB.

-spec memory_read(instance(), binary() | undefined, non_neg_integer(), non_neg_integer()) ->
          dirty | {ok, binary()} | error().
memory_read(_Inst, _Name, _Offset, _Length) -> ?STUB.

-spec memory_read_dirty(instance(), binary() | undefined, non_neg_integer(), non_neg_integer()) ->
          {ok, binary()} | error().
memory_read_dirty(_Inst, _Name, _Offset, _Length) -> ?STUB.

-spec memory_write(instance(), binary() | undefined, non_neg_integer(), binary()) -> dirty | ok | error().
memory_write(_Inst, _Name, _Offset, _Data) -> ?STUB.

-spec memory_write_dirty(instance(), binary() | undefined, non_neg_integer(), binary()) ->
          ok | error().
memory_write_dirty(_Inst, _Name, _Offset, _Data) -> ?STUB.

-spec memory_size_dirty(instance(), binary() | undefined) -> term().
memory_size_dirty(_Inst, _Name) -> ?STUB.

-spec memory_size(instance(), binary() | undefined) ->
          dirty | {ok, {non_neg_integer(), non_neg_integer()}} | error().
memory_size(_Inst, _Name) -> ?STUB.

-spec call_ref_start(instance(), term(), [term()], map(), reference() | undefined) -> term().
call_ref_start(_Inst, _Func, _Args, _Opts, _Ref) -> ?STUB.

-spec ref_info(ref()) -> map().
ref_info(_Ref) -> ?STUB.

-spec extern_new(instance(), term()) -> {ok, ref()} | error().
extern_new(_Inst, _Term) -> ?STUB.

-spec extern_data(ref()) -> dirty | {ok, term()} | error().
extern_data(_Ref) -> ?STUB.

-spec extern_data_dirty(ref()) -> {ok, term()} | error().
extern_data_dirty(_Ref) -> ?STUB.

-spec heap_collect(instance()) -> ok | error().
heap_collect(_Inst) -> ?STUB.

-spec instance_fuel(instance()) -> dirty | {ok, non_neg_integer()} | error().
instance_fuel(_Inst) -> ?STUB.

-spec access_wait(instance() | ref()) -> ok.
access_wait(_Of) -> ?STUB.

-spec global_get(instance(), binary()) -> dirty | {ok, term()} | error().
global_get(_Inst, _Name) -> ?STUB.

-spec global_set(instance(), binary(), term()) -> dirty | ok | error().
global_set(_Inst, _Name, _Value) -> ?STUB.

-spec table_size(instance(), binary()) -> dirty | {ok, non_neg_integer()} | error().
table_size(_Inst, _Name) -> ?STUB.

-spec table_get(instance(), binary(), non_neg_integer()) -> dirty | {ok, term()} | error().
table_get(_Inst, _Name, _Index) -> ?STUB.

-spec table_set(instance(), binary(), non_neg_integer(), term()) -> dirty | ok | error().
table_set(_Inst, _Name, _Index, _Value) -> ?STUB.

-spec table_grow(instance(), binary(), non_neg_integer(), term()) ->
          {ok, non_neg_integer()} | error().
table_grow(_Inst, _Name, _Count, _Value) -> ?STUB.

-spec func_ref(instance(), binary()) -> dirty | {ok, ref()} | error().
func_ref(_Inst, _Name) -> ?STUB.

-spec struct_new(instance(), term(), [term()]) -> {ok, ref()} | error().
struct_new(_Inst, _Type, _Fields) -> ?STUB.

-spec struct_get(ref(), non_neg_integer()) -> dirty | {ok, term()} | error().
struct_get(_Ref, _Field) -> ?STUB.

-spec struct_set(ref(), non_neg_integer(), term()) -> dirty | ok | error().
struct_set(_Ref, _Field, _Value) -> ?STUB.

-spec array_new(instance(), term(), [term()] | {non_neg_integer(), term()} | binary()) ->
          {ok, ref()} | error().
array_new(_Inst, _Type, _Elements) -> ?STUB.

-spec array_len(ref()) -> dirty | {ok, non_neg_integer()} | error().
array_len(_Ref) -> ?STUB.

-spec array_get(ref(), non_neg_integer()) -> dirty | {ok, term()} | error().
array_get(_Ref, _Index) -> ?STUB.

-spec array_set(ref(), non_neg_integer(), term()) -> dirty | ok | error().
array_set(_Ref, _Index, _Value) -> ?STUB.

-spec stream_send(instance(), binary()) -> ok | error().
stream_send(_Inst, _Data) -> ?STUB.

-spec stream_send_dirty(instance(), binary()) -> ok | error().
stream_send_dirty(_Inst, _Data) -> ?STUB.

-spec stream_close(instance()) -> ok | error().
stream_close(_Inst) -> ?STUB.

-spec preinit_begin(binary(), map()) -> {ok, preinit(), mod()} | error().
preinit_begin(_Wasm, _Opts) -> ?STUB.

-spec preinit_finish(preinit(), instance(), [binary()], [binary()]) -> {ok, binary()} | error().
preinit_finish(_Pre, _Inst, _Ran, _Remove) -> ?STUB.

-spec cache_entry([binary()], binary() | undefined) -> {binary(), binary() | undefined}.
cache_entry(_Parts, _Key) -> ?STUB.

-spec cache_prepare(binary(), boolean()) -> ok | error().
cache_prepare(_Dir, _Private) -> ?STUB.

-spec cache_lock(binary(), binary()) -> {ok, reference()} | busy | error().
cache_lock(_Dir, _Name) -> ?STUB.

-spec cache_unlock(reference()) -> ok.
cache_unlock(_Lock) -> ?STUB.

-spec cache_store(mod(), binary(), binary(), binary() | undefined) -> ok | error().
cache_store(_Mod, _Dir, _Name, _Key) -> ?STUB.

-ifdef(INJECT_PANICS).
-spec panic_points() -> [binary()].
panic_points() -> ?STUB.

-spec panic_arm(binary(), non_neg_integer()) -> ok.
panic_arm(_Point, _Times) -> ?STUB.

-spec panic_left(binary()) -> non_neg_integer().
panic_left(_Point) -> ?STUB.
-endif.
