%% The public API: each function checks what it was given and hands it on. Nothing raises for a
%% guest's failure; only a first argument of the wrong sort is a `badarg' exception.

%% @doc WebAssembly modules, compiled and run by Wasmtime.
%%
%% Failures are `{error, Error}' with an {@type error()} map: match on its `class' and `kind'. A wrong
%% option is `kind => badarg' and `key' names it. A first argument that is not a module, an instance
%% or WebAssembly at all is a `badarg' exception, which the shell explains.
-module(wasmtime).

-include("wasmtime_badarg.hrl").
-include("wasmtime_instance.hrl").
-include("wasmtime_text.hrl").

-export([compile/1, compile/2, wat2wasm/1, validate/1, validate/2]).
-export([serialize/1, serialize/2, deserialize/1, deserialize/2, deserialize_file/1, deserialize_file/2]).
-export([cached/3]).
-export([imports/1, exports/1, module_options/1, module_kind/1, pool_info/1]).
-export([features/0, version/0, preinit/3]).
-export([prepare/2, instantiate/1, instantiate/2, call/3, call/4, run/1, run/2, interrupt/1, destroy/1]).
-export([call_async/3, call_async/4, await/2, await/3, handle_host_call/2, import_fun/2, info/1]).
-export([read_memory/3, read_memory/4, write_memory/3, write_memory/4]).
-export([memory_size/1, memory_size/2, read_output/1, fuel_remaining/1, ref/1]).
-export([global_get/2, global_set/3]).
-export([table_size/2, table_get/3, table_set/4, table_grow/3, table_grow/4]).
-export([call_ref/3, call_ref/4, funcref/2, externref/2, externref_data/1, ref_info/1, gc/1]).
-export([struct_new/3, struct_get/2, struct_set/3]).
-export([array_new/3, array_len/1, array_get/2, array_set/3]).
-export([send/2, close/1]).
-export_type([wasm_module/0, template/0, instance/0, ref/0, ref_info/0, object_type/0, value/0,
              source/0,
              error/0, class/0, kind/0, frame/0]).
-export_type([compile_options/0, serialize_options/0, load_options/0, load_file_options/0, cached_options/0,
              cache_event/0, instance_options/0,
              call_options/0, async_call/0, info/0, preinit_options/0, wasi_options/0, host_fun/0,
              host_fun_type/0, init/0, pool_info/0,
              external_kind/0]).

-type wasm_module() :: reference().
%% A compiled module. Immutable; any process may use it; freed when nobody holds it.
-type template() :: #wasmtime_template{}.
%% A module with checked and linked instance options: opaque. Any process may use it.
-type instance() :: #wasmtime_instance{}.
%% An instance: opaque. Any process may use it; one call runs at a time, others wait in order.
-type value() :: integer() | float() | nan | infinity | neg_infinity
               | {f32, 0..16#FFFFFFFF} | {f64, 0..16#FFFFFFFFFFFFFFFF} | <<_:128>>
               | null | {i31, integer()} | ref().
%% i32 takes -2^31..2^32-1 and gives signed, i64 likewise. f32 and f64 take floats, integers that
%% fit, the three atoms, or exact bits; NaNs with a payload are given as bits. v128 is a 16-byte
%% little-endian binary. A reference is `null', `{i31, N}' (takes -2^30..2^31-1, gives signed) or
%% opaque.
-type ref() :: reference().
%% A reference to a function, an object or an Erlang term inside an instance. It keeps both alive,
%% and belongs to that instance: docs/references.md.
-type object_type() :: wasmtime_ref:type().
%% A type of the module, named by where the module uses it: `{param | result, Func, Position}' (from 1;
%% `Func' is an export's name, or `{Module, Name}' of an import), `{global | table, Name}',
%% `{field, Type, Index}' (from 0), `{element, Type}', or a reference to an object of the type.
-type ref_info() :: #{kind := funcref | externref | struct | array | anyref | exnref,
                      params => [binary()], results => [binary()],
                      fields => [binary()], element => binary()}.
-type source() :: binary() | {wat, iodata()}.
%% A module's bytes, or its text.
-type error() :: wasmtime_error:t().
-type class() :: wasmtime_error:class().
-type kind() :: wasmtime_error:kind().
-type frame() :: wasmtime_error:frame().
-type compile_options() :: wasmtime_options:compile().
-type serialize_options() :: wasmtime_artifact:serialize().
-type load_options() :: wasmtime_artifact:load().
-type load_file_options() :: wasmtime_artifact:load_file().
-type cached_options() :: wasmtime_cached_options:options().
-type cache_event() :: wasmtime_cached_options:event().
-type instance_options() :: wasmtime_options:instance().
-type call_options() :: wasmtime_options:call().
-type async_call() :: pos_integer().
%% The `Id' in the message of a call's result. No two calls of a node have the same.
-type info() :: #{state := idle | running | host_call | destroyed,
                  runner := thread | scheduler,
                  memory_bytes := non_neg_integer(),
                  memory_peak := non_neg_integer(),
                  calls := non_neg_integer(),
                  host_calls := non_neg_integer(),
                  queued := non_neg_integer(),
                  fuel := non_neg_integer() | undefined}.
-type preinit_options() :: wasmtime_options:preinit().
-type wasi_options() :: wasmtime_wasi:options().
-type host_fun() :: wasmtime_options:host_fun().
-type host_fun_type() :: wasmtime_import:type().
-type init() :: [iodata() | {iodata(), [value()]}] | fun((instance()) -> ok).
-type external_kind() :: func | global | table | memory | tag | instance.
-type pool_info() :: #{total | used | warm | restoring | resets | bytes_restored | verify_failures =>
                           non_neg_integer()}.

-define(NO_CALL_OPTIONS, #{timeout => infinity, fuel => undefined}).
%% ---- modules --------------------------------------------------------------------------------

%% @equiv compile(Source, #{})
-spec compile(source()) -> {ok, wasm_module()} | {error, error()}.
compile(Source) -> compile(Source, #{}).

%% @doc Compiles a module. Options: `fuel' (`false'; count fuel), `opt_level' (`none', `speed' by
%% default, `speed_and_size'), `proposals' (`#{Proposal => boolean()}'; `simd => false' turns
%% `relaxed_simd' off too), `allocator' (`on_demand' by default, or `pooling') and `pooling', a map
%% of `instances' (1..10000, default 1000), `max_memory' (64 KiB..4 GiB in bytes, a multiple of
%% 64 KiB, default 256 MiB), `keep_resident' (bytes, 0..max_memory, default 0), `core_instances' and
%% `tables' (1..100000), `memories' (1..10000; the three default to `instances') and `verify'
%% (`false'; compare each memory with its image after a reset).
%%
%% Errors are of class `compile': `malformed' or `invalid' bytes, `unsupported', `badarg',
%% `too_many_configurations' (more than 32 sets of options are in use), `pool_too_large',
%% `unavailable' (a build without a compiler).
-spec compile(source(), compile_options()) -> {ok, wasm_module()} | {error, error()}.
compile(Source, Opts) ->
    with_source(Source, fun wasmtime_options:compile/1, Opts, fun wasmtime_nif:module_compile/2).

%% @doc Translates the text format. Errors: class `compile', kind `malformed', with line and column.
-spec wat2wasm(iodata()) -> {ok, binary()} | {error, error()}.
wat2wasm(Text) -> wasm({wat, Text}).

%% @equiv validate(Source, #{})
-spec validate(source()) -> ok | {error, error()}.
validate(Source) -> validate(Source, #{}).

%% @doc Whether a module is valid under these compile options; it is not compiled. Errors are those
%% of {@link compile/2}.
-spec validate(source(), compile_options()) -> ok | {error, error()}.
validate(Source, Opts) ->
    with_source(Source, fun wasmtime_options:compile/1, Opts, fun wasmtime_nif:module_validate/2).

%% @equiv serialize(Mod, #{})
-spec serialize(wasm_module()) -> {ok, binary()} | {error, error()}.
serialize(Mod) -> serialize(Mod, #{}).

%% @doc The compiled module as an artifact that {@link deserialize/2} loads without compiling. It
%% suits this version of Wasmtime, this kind of CPU, and the same `fuel' and `proposals' only. With
%% `key' (a binary, best of 32 random bytes) it is sealed: its last 32 bytes are the HMAC-SHA256 of
%% all before them, and who loads it with the same key knows that somebody with the key made it.
%% Errors: class `compile', kind `badarg', and `unavailable' in a build without a compiler.
-spec serialize(wasm_module(), serialize_options()) -> {ok, binary()} | {error, error()}.
serialize(Mod, Opts) -> wasmtime_artifact:serialize(Mod, Opts).

%% @doc As {@link deserialize/2} with the default options, and if the artifact counts fuel, with
%% `#{fuel => true}'.
-spec deserialize(binary()) -> {ok, wasm_module()} | {error, error()}.
deserialize(Bin) ->
    default_or_fuel(fun(Opts) -> deserialize(Bin, Opts) end).

%% @doc Loads an artifact after a check of every byte. Options are those of {@link compile/2}; the
%% allocator is not part of an artifact, so any may load it. Never load an artifact that was made by
%% somebody you do not trust: a checksum finds damage, not intent. Further option: `key', and then
%% only what {@link serialize/2} sealed with this key is looked at; everything else is `untrusted'.
%% Without it a seal is not checked. Errors are of class `compile': `untrusted', `corrupted'
%% (truncated, damaged or no artifact), `incompatible' (another version, CPU, or other options),
%% `badarg'.
-spec deserialize(binary(), load_options()) -> {ok, wasm_module()} | {error, error()}.
deserialize(Bin, Opts) when is_binary(Bin) -> wasmtime_artifact:deserialize(Bin, Opts);
deserialize(_, _) ->
    ?BADARG(artifact).

%% @doc As {@link deserialize_file/2} with the default options, and if the artifact counts fuel, with
%% `#{fuel => true}'.
-spec deserialize_file(file:name_all()) -> {ok, wasm_module()} | {error, error()}.
deserialize_file(Path) ->
    default_or_fuel(fun(Opts) -> deserialize_file(Path, Opts) end).

%% @doc Loads an artifact by mapping its file, which must stay as it is while the module lives:
%% replace it by renaming a new file over it. Further options: `check => metadata' (the default:
%% footer, lengths and image table; the file is trusted as a shared library is) or `full' (the
%% checksum of every byte too), and `key' as for {@link deserialize/2}: then everything is checked,
%% and a copy in memory is mapped, which no change of the file reaches (see docs/artifacts.md).
%% Errors as {@link deserialize/2}, and `file' when it cannot be read.
-spec deserialize_file(file:name_all(), load_file_options()) ->
          {ok, wasm_module()} | {error, error()}.
deserialize_file(Path, Opts) when is_binary(Path); is_list(Path) ->
    case wasmtime_text:path(Path) of
        {ok, Bin} -> wasmtime_artifact:deserialize_file(Bin, Opts);
        error -> badarg(compile, "the path must be " ?TEXT ", and not empty")
    end;
deserialize_file(_, _) ->
    ?BADARG(path).

%% @doc A module that is made once and kept in a directory, as an artifact named by everything that
%% went into it. `Source' is what {@link compile/2} takes, or a function that makes it and is called
%% only when it is needed. Options are those of {@link compile/2}, and `preinit' (`{Options, Init}' of
%% {@link preinit/3}: what is kept is its result), `version' (any term that goes into the name;
%% needed where a function or files do), `key' (see {@link serialize/2}), `check' (`full' by default,
%% or `metadata'), `wait' (ms or `infinity', default 60,000: how long to wait for somebody else who is
%% making the same) and `report' (a function that is told `hit', `made', `{replaced, Error}' or
%% `{not_stored, Error}'; by default the last two are logged).
%%
%% What was kept with `key' is loaded by this function only: its seal is made with a key of its own for
%% each entry. What is found and cannot be used is made again. A directory that cannot be used or is full costs
%% the entry, not the module; without a key, one that others can write to is refused. Errors: those of
%% {@link compile/2} and {@link preinit/3}; class `compile', `untrusted' (the directory), `badarg'
%% (`key' may also be `directory', and `source' for a function that does not answer a module).
-spec cached(wasmtime_cached_options:source(), file:name_all(), cached_options()) ->
          {ok, wasm_module()} | {error, error()}.
cached(Source, Dir, Opts) ->
    is_source(Source) orelse ?BADARG(cache_source),
    case wasmtime_text:path(Dir) of
        {ok, Bin} ->
            wasmtime_cached:run(Source, Bin, Opts);
        error ->
            Text = <<"the directory must be " ?TEXT ", and not empty">>,
            {error, wasmtime_error:badarg(compile, directory, Text)}
    end.

is_source({wat, Text}) -> is_binary(Text) orelse is_list(Text);
is_source(Source) -> is_binary(Source) orelse is_function(Source, 0).

%% @doc What a module needs: `{Module, Name, Kind}' in its own order.
-spec imports(wasm_module()) -> [{binary(), binary(), external_kind()}].
imports(Mod) ->
    try wasmtime_nif:module_imports(Mod)
    catch error:badarg -> ?BADARG(module)
    end.

%% @doc What a module offers: `{Name, Kind}' in its own order.
-spec exports(wasm_module()) -> [{binary(), external_kind()}].
exports(Mod) ->
    try wasmtime_nif:module_exports(Mod)
    catch error:badarg -> ?BADARG(module)
    end.

%% @doc The compile options that a module lives under, with the defaults of those that were not given;
%% `proposals' holds the ones that were given, and `relaxed_simd' where `simd => false' turned it off.
%% All others are on or off as Wasmtime has them.
-spec module_options(wasm_module()) -> compile_options().
module_options(Mod) ->
    try wasmtime_nif:module_options(Mod)
    catch error:badarg -> ?BADARG(module)
    end.

%% @doc Whether it is a module or a component.
-spec module_kind(wasm_module()) -> module | component.
module_kind(Mod) ->
    try wasmtime_nif:module_kind(Mod)
    catch error:badarg -> ?BADARG(module)
    end.

%% @doc The pool that the module's instances live in: slots in `total', `used' and `warm' (kept for
%% an image), those of instances that are gone in `restoring' (nobody waits for them: a pool has two
%% slots more than `memories'), `resets', `bytes_restored' by them, and `verify_failures'. Without a
%% pool `total' is what the engine holds just then.
-spec pool_info(wasm_module()) -> pool_info().
pool_info(Mod) ->
    try wasmtime_nif:pool_info(Mod)
    catch error:badarg -> ?BADARG(module)
    end.

%% @doc What this build and host can do: `compiler', `wat', `wasi', `components', `pagemap_scan'.
-spec features() -> #{atom() => boolean()}.
features() -> wasmtime_nif:features().

%% @doc The version of Wasmtime.
-spec version() -> binary().
version() -> wasmtime_nif:version().

%% @doc Runs a module's initialization now and gives back a module that starts from there.
%%
%% `Opts' are those of {@link instantiate/2} without `links', plus `compile' (compile options of the run; it always
%% allocates on demand) and `remove_exports' (names). `Init' lists export names or `{Name, Args}',
%% called in order, or is a function that gets the instance and returns `ok'. The result is plain
%% WebAssembly without its start section, without `_initialize' when a call of it ended well, and without
%% `remove_exports'.
%%
%% A call that fails is returned as it is. Class `preinit': `init' (the function did not return
%% `ok'), `unsupported_import', `unsupported_type', `unsupported', `malformed', `table_changed',
%% `unavailable', `badarg'.
-spec preinit(source(), preinit_options(), init()) -> {ok, binary()} | {error, error()}.
preinit(Source, Opts, Init) ->
    with_source(Source, fun wasmtime_preinit:options/1, Opts,
                fun(Wasm, {Compile, Remove, Instance}) ->
                    wasmtime_preinit:run(Wasm, Compile, Instance, Remove, Init)
                end).

%% ---- instances ------------------------------------------------------------------------------

%% @doc Checks instantiate options and links the module with them once. `instantiate/1' takes the
%% template, and then looks nothing up; use it where instances come and go. Directories of `wasi'
%% are opened here, an inherited environment is read here.
%%
%% Errors: those of {@link instantiate/2} that do not depend on the moment, limits that no instance could
%% live under among them.
-spec prepare(wasm_module(), instance_options()) -> {ok, template()} | {error, error()}.
prepare(Mod, Opts) ->
    case instance_options(Mod, Opts) of
        {ok, Inheriting, Funs} ->
            Complete = wasmtime_options:resolved(Inheriting),
            case wasmtime_nif:instance_prepare(Mod, Complete) of
                {ok, Ref} ->
                    Table = wasmtime_call:table(Funs),
                    #{runner := Runner} = Complete,
                    {ok, #wasmtime_template{ref = Ref, runner = Runner, funs = Funs,
                                            place = wasmtime_options:place(Complete), table = Table}};
                Error -> Error
            end;
        Error ->
            Error
    end.

%% @doc An instance of a template, or of a module that is granted nothing.
%% @see instantiate/2
-spec instantiate(wasm_module() | template()) -> {ok, instance()} | {error, error()}.
instantiate(#wasmtime_template{} = Template) -> wasmtime_call:instantiate(Template);
instantiate(Mod) -> instantiate(Mod, #{}).

%% @doc Makes an instance, which is granted nothing that is not named here. Options: `imports'
%% (`#{{Module, Name} => fun((Inst, Args) -> {ok, Results} | {error, Reason})}'; such keys may also
%% stand among the options themselves), `links' (`[{Name, Module}]', default none: modules of the same
%% compile options that are made first, in order, in the same store, and whose exports serve imports
%% from `Name', before `imports' does; see docs/links.md), `wasi' (a map, see docs/wasi.md; without it WASI is not
%% linked), `memory_limit' (bytes of each memory, default 256 MiB), `total_memory_limit' (of all
%% together, default `unlimited'), `max_tables' (100), `max_table_elements' (10,000,000),
%% `max_instances' (10), each also `unlimited', `host_timeout' (ms of one
%% host call or `infinity', default 30,000; a tick of the system's clock more, at most), `host' (the pid that serves host calls, see
%% {@link handle_host_call/2}; default the calling process), `stream' (process that gets what the guest streams out;
%% by default the one that instantiates), `inbox_limit' (bytes sent and not yet read, default 16
%% MiB), and `runner' (`thread', the default: an OS thread runs
%% the guest; `scheduler': the calling process does, in slices; see docs/throughput.md).
%%
%% A template has its options already: given here, it is a `badarg' exception, and {@link instantiate/1}
%% takes it. Errors: class `link' (`unknown_import', `incompatible_import', `unsupported_import', `cycle'), `instantiate' (`badarg', also for
%% a file or folder of `wasi' that cannot be opened), `limit', `pool' (`pool_exhausted'), `trap' (from the start section).
-spec instantiate(wasm_module(), instance_options()) -> {ok, instance()} | {error, error()}.
instantiate(Mod, Opts) ->
    case instance_options(Mod, Opts) of
        {ok, Complete, Funs} -> wasmtime_call:instantiate(Mod, Complete, Funs);
        Error -> Error
    end.

%% A template has its options.
instance_options(#wasmtime_template{}, _) ->
    ?BADARG(template);
instance_options(Mod, Opts) ->
    case wasmtime_options:instance(instantiate, Opts, module_kind(Mod)) of
        {ok, Complete, Funs} ->
            case wasmtime_import:check([Mod], Complete, Funs) of
                ok -> {ok, Complete, Funs};
                Error -> Error
            end;
        Error ->
            Error
    end.

%% @doc A host function with a type, to be used among `imports'. Instantiation then compares the type
%% with what the module imports: class `link', kind `incompatible_import'.
%%
%% `import_fun({Params, Results}, Fun)' makes it from a function of the list of arguments, which gives
%% the result itself where `Results' is one type, and a list where it is a list (with `[]' whatever it
%% gives is ignored); an exception is a host error. It returns the function itself.
%%
%% `import_fun(Inst, Name)' gives `{ok, Fun}' for an export of another instance, which may not be there: its
%% calls run in the process that serves the host call, and an error of theirs is a host error with its
%% message. They end with the host call: at the `timeout' of the call around it or its `host_timeout', by
%% {@link interrupt/1} or {@link destroy/1}. Errors: class `call' (`unknown_export', `badarg').
-spec import_fun(host_fun_type(), fun(([value()]) -> value() | [value()])) ->
          host_fun() | {error, error()};
                (instance(), iodata()) -> {ok, host_fun()} | {error, error()}.
import_fun(#wasmtime_instance{} = Inst, Name) ->
    with_call(Name, [], fun(Bin) -> wasmtime_import:export(Inst, Bin) end);
import_fun(Type, Fun) when is_function(Fun, 1) ->
    case wasmtime_import:typed(Type, Fun) of
        {ok, Typed} -> Typed;
        error -> ?BADARG(type)
    end;
import_fun(Type, _) ->
    case wasmtime_import:typed(Type, fun(_) -> ok end) of
        {ok, _} -> badarg(instantiate, "the function must take one argument, the list of arguments");
        error -> ?BADARG(type)
    end.

%% @equiv call(Inst, Name, Args, #{})
-spec call(instance(), iodata(), [value()]) -> {ok, [value()]} | {error, error()}.
call(#wasmtime_instance{} = Inst, Name, Args) -> call_checked(Inst, Name, Args, ?NO_CALL_OPTIONS);
call(_, _, _) -> ?BADARG(instance).

%% @doc Calls an exported function. Host functions run in the calling process meanwhile. Options:
%% `timeout' (ms of the whole call, host calls included, default `infinity'), `fuel' (of this call,
%% for a module compiled with `fuel').
%%
%% Errors: class `call' (`unknown_export', `badarity', `badarg', `wrong_instance', `destroyed'), `trap' (a kind for
%% each trap, with `trace'; also `timeout', `interrupt', `out_of_fuel'), `host' (`host_error',
%% `host_timeout'), `exit' (a WASI exit, with `status'), `limit'.
-spec call(instance(), iodata(), [value()], call_options()) ->
          {ok, [value()]} | {error, error()}.
call(#wasmtime_instance{} = Inst, Name, Args, Opts) ->
    case wasmtime_options:call(Opts) of
        {ok, Complete} -> call_checked(Inst, Name, Args, Complete);
        Error -> Error
    end;
call(_, _, _, _) ->
    ?BADARG(instance).

%% Without a closure: this is the way of every short call.
call_checked(Inst, Name, Args, Opts) when length(Args) >= 0 ->
    case wasmtime_text:name(Name) of
        {ok, Bin} -> wasmtime_call:call(Inst, Bin, Args, Opts);
        error -> badarg(call, "the name must be " ?TEXT)
    end;
call_checked(_, _, _, _) ->
    badarg(call, "the arguments must be a list").

with_call(Name, Args, Call) when length(Args) >= 0 ->
    case wasmtime_text:name(Name) of
        {ok, Bin} -> Call(Bin);
        error -> badarg(call, "the name must be " ?TEXT)
    end;
with_call(_, _, _) ->
    badarg(call, "the arguments must be a list").

%% @equiv call_ref(Inst, Func, Args, #{})
-spec call_ref(instance(), ref(), [value()]) -> {ok, [value()]} | {error, error()}.
call_ref(#wasmtime_instance{} = Inst, Func, Args) ->
    call_ref_checked(Inst, Func, Args, ?NO_CALL_OPTIONS);
call_ref(_, _, _) ->
    ?BADARG(instance).

%% @doc Calls the function that a reference of this instance refers to. Options and errors are those
%% of {@link call/4}, and `wrong_instance'.
-spec call_ref(instance(), ref(), [value()], call_options()) ->
          {ok, [value()]} | {error, error()}.
call_ref(#wasmtime_instance{} = Inst, Func, Args, Opts) ->
    case wasmtime_options:call(Opts) of
        {ok, Complete} -> call_ref_checked(Inst, Func, Args, Complete);
        Error -> Error
    end;
call_ref(_, _, _, _) ->
    ?BADARG(instance).

call_ref_checked(Inst, Func, Args, Opts) when length(Args) >= 0 ->
    wasmtime_call:call_ref(Inst, Func, Args, Opts);
call_ref_checked(_, _, _, _) ->
    badarg(call, "the arguments must be a list").
%% @equiv call_async(Inst, Name, Args, #{})
-spec call_async(instance(), iodata(), [value()]) -> {ok, async_call()} | {error, error()}.
call_async(Inst, Name, Args) -> call_async(Inst, Name, Args, #{}).

%% @doc Starts a call and returns at once. The result comes as one message to this process,
%% `{wasmtime_result, Ref, Call, Result}' with the instance's {@link ref/1}: match on it, or wait
%% with {@link await/3}. Options as {@link call/4}.
%%
%% Host functions are served by the instance's `host'; without one by this process, which gets a
%% message for each (see {@link handle_host_call/2}) and serves them while it awaits. The death of
%% this process ends the call.
%%
%% Errors that are known at once: class `call' (`unknown_export', `badarity', `badarg', `destroyed'), `limit'
%% (with `runner => scheduler' `process_limit': the node has no room for another process).
-spec call_async(instance(), iodata(), [value()], call_options()) ->
          {ok, async_call()} | {error, error()}.
call_async(#wasmtime_instance{} = Inst, Name, Args, Opts) ->
    case wasmtime_options:call(Opts) of
        {ok, Complete} ->
            with_call(Name, Args, fun(Bin) -> wasmtime_async:start(Inst, Bin, Args, Complete) end);
        Error ->
            Error
    end;
call_async(_, _, _, _) ->
    ?BADARG(instance).

%% @equiv await(Inst, Call, infinity)
-spec await(instance(), async_call()) -> {ok, [value()]} | {error, error()}.
await(Inst, Call) -> await(Inst, Call, infinity).

%% @doc Waits for the result of a call that this process started, and serves host calls of the
%% instance meanwhile. After `Timeout' milliseconds the call is cancelled: its result is then the
%% trap `timeout', or the answer that was just ready. Nothing stays in the mailbox.
%%
%% Errors: those of {@link call/4}; class `call', kind `badarg' at once for a call that another
%% process started, or that was awaited before.
-spec await(instance(), async_call(), timeout()) -> {ok, [value()]} | {error, error()}.
await(#wasmtime_instance{} = Inst, Call, Timeout) ->
    case wasmtime_options:wait(Timeout) of
        {ok, Ms} -> wasmtime_async:await(Inst, Call, Ms);
        Error -> Error
    end;
await(_, _, _) ->
    ?BADARG(instance).

%% @doc Serves a host call in the instance's `host', or in a process that it handed the message on
%% to: runs the import's function and answers the guest. `ok' for every message
%% `{wasmtime_host_call, Ref, ...}' with the instance's {@link ref/1}, also for one that nobody
%% waits for any more; `ignore' for everything else.
-spec handle_host_call(instance(), term()) -> ok | ignore.
handle_host_call(#wasmtime_instance{} = Inst, Message) -> wasmtime_host:handle(Inst, Message);
handle_host_call(_, _) -> ?BADARG(instance).

%% @equiv run(Inst, #{})
-spec run(instance()) -> ok | {error, error()}.
run(Inst) -> run(Inst, #{}).

%% @doc Runs a WASI command: calls `_start'. A command that returns, or ends with status 0, is `ok';
%% another status is an error of class `exit'. Options and other errors as {@link call/4}.
-spec run(instance(), call_options()) -> ok | {error, error()}.
run(#wasmtime_instance{} = Inst, Opts) ->
    case wasmtime_options:call(Opts) of
        {ok, Complete} -> wasmtime_call:run(Inst, Complete);
        Error -> Error
    end;
run(_, _) ->
    ?BADARG(instance).

%% @doc Ends the running call with the trap `interrupt', wherever it is; where none runs yet, the one that
%% was asked for first and is about to. Calls behind it go on. `not_running' when there is none at all.
-spec interrupt(instance()) -> ok | not_running.
interrupt(#wasmtime_instance{ref = Ref}) -> wasmtime_nif:instance_interrupt(Ref);
interrupt(_) -> ?BADARG(instance).

%% @doc Ends an instance: idle, running, in a host call, or ended already. When this returns, what it
%% held is freed and its place in the pool is free. Its memory is restored by then or soon after, before
%% anybody else gets it: where a processor is free, nobody waits for that (`restoring' of
%% {@link pool_info/1}; 64 MiB at most).
-spec destroy(instance()) -> ok.
destroy(#wasmtime_instance{} = Inst) -> wasmtime_call:destroy(Inst);
destroy(_) -> ?BADARG(instance).

%% @doc The name of an instance in messages: `{wasmtime_host_call, Ref, ...}' to its `host' and
%% `{wasmtime_stream, Ref, ...}' carry it, so that one process can serve several instances.
-spec ref(instance()) -> reference().
ref(#wasmtime_instance{id = Id}) -> Id;
ref(_) -> ?BADARG(instance).

%% @doc What an instance is doing and has used; answered at once, also while the guest runs. `state' is
%% `idle', `running', `host_call' (it waits for the answer of a host function) or `destroyed'; `runner';
%% `memory_bytes' and `memory_peak' of all its memories together; `calls' and `host_calls' that began;
%% `queued' calls that wait for their turn; `fuel' that is left, while the guest runs what its last call
%% began with, `undefined' for a module that does not count it.
-spec info(instance()) -> info().
info(#wasmtime_instance{ref = Ref}) -> wasmtime_nif:instance_info(Ref);
info(_) -> ?BADARG(instance).

%% ---- memory and output ----------------------------------------------------------------------

%% @doc Reads from the memory exported as `memory', else from the first exported one. `Offset' and
%% `Length' in bytes. Errors: class `memory' (`memory_out_of_bounds', `unknown_export', `badarg') and
%% class `call' (`busy' while the guest runs, `destroyed').
-spec read_memory(instance(), non_neg_integer(), non_neg_integer()) ->
          {ok, binary()} | {error, error()}.
read_memory(Inst, Offset, Length) -> wasmtime_memory:read(Inst, {ok, undefined}, Offset, Length).

%% @doc Reads from the memory of that name.
-spec read_memory(instance(), iodata(), non_neg_integer(), non_neg_integer()) ->
          {ok, binary()} | {error, error()}.
read_memory(Inst, Name, Offset, Length) -> wasmtime_memory:read(Inst, wasmtime_text:name(Name), Offset, Length).

%% @doc Writes to the memory that {@link read_memory/3} reads.
-spec write_memory(instance(), non_neg_integer(), iodata()) -> ok | {error, error()}.
write_memory(Inst, Offset, Data) -> wasmtime_memory:write(Inst, {ok, undefined}, Offset, Data).

%% @doc Writes to the memory of that name.
-spec write_memory(instance(), iodata(), non_neg_integer(), iodata()) -> ok | {error, error()}.
write_memory(Inst, Name, Offset, Data) -> wasmtime_memory:write(Inst, wasmtime_text:name(Name), Offset, Data).

%% @doc The size of the memory that {@link read_memory/3} reads.
-spec memory_size(instance()) ->
          {ok, {Pages :: non_neg_integer(), Bytes :: non_neg_integer()}} | {error, error()}.
memory_size(Inst) -> wasmtime_memory:size(Inst, {ok, undefined}).

%% @doc The size of the memory of that name.
-spec memory_size(instance(), iodata()) ->
          {ok, {Pages :: non_neg_integer(), Bytes :: non_neg_integer()}} | {error, error()}.
memory_size(Inst, Name) -> wasmtime_memory:size(Inst, wasmtime_text:name(Name)).

%% @doc Takes what the guest wrote to `capture'd streams since the last time: standard output,
%% standard error, and the bytes of each that were dropped beyond `output_limit'.
-spec read_output(instance()) ->
          {ok, {binary(), binary(), {non_neg_integer(), non_neg_integer()}}} | {error, error()}.
read_output(#wasmtime_instance{ref = Ref}) ->
    case wasmtime_nif:output_read(Ref) of
        dirty -> wasmtime_nif:output_read_dirty(Ref);
        Taken -> Taken
    end;
read_output(_) -> ?BADARG(instance).

%% @doc The fuel that is left, of a module that was compiled with `fuel': after a call, what that
%% call left, also when it trapped (then what it used last may be missing: at most 100,000, since it
%% last called a function). A call without the option `fuel' begins
%% with 2^64-1. Errors: class `call' (`unsupported' without fuel, `busy' while the guest runs, `destroyed').
-spec fuel_remaining(instance()) -> {ok, non_neg_integer()} | {error, error()}.
fuel_remaining(#wasmtime_instance{ref = Ref}) ->
    wasmtime_access:retry(Ref, fun() -> wasmtime_nif:instance_fuel(Ref) end);
fuel_remaining(_) ->
    ?BADARG(instance).

%% ---- globals and tables ---------------------------------------------------------------------

%% @doc The value of an exported global, bit by bit. Errors: class `global' (`unknown_export',
%% `badarg') and class `call' (`busy' while the guest runs, `destroyed').
-spec global_get(instance(), iodata()) -> {ok, value()} | {error, error()}.
global_get(Inst, Name) -> wasmtime_global:get(Inst, wasmtime_text:name(Name)).

%% @doc Gives an exported global a value. Errors are those of {@link global_get/2}, `immutable' of
%% class `global', and `wrong_instance' of class `call'.
-spec global_set(instance(), iodata(), value()) -> ok | {error, error()}.
global_set(Inst, Name, Value) -> wasmtime_global:set(Inst, wasmtime_text:name(Name), Value).

%% @doc How many elements an exported table has. Errors: class `table' (`unknown_export', `badarg')
%% and class `call' (`busy' while the guest runs, `destroyed').
-spec table_size(instance(), iodata()) -> {ok, non_neg_integer()} | {error, error()}.
table_size(Inst, Name) -> wasmtime_table:size(Inst, wasmtime_text:name(Name)).

%% @doc An element of an exported table; `Index' counts from 0. Errors are those of
%% {@link table_size/2}, and `table_out_of_bounds' of class `table'.
-spec table_get(instance(), iodata(), non_neg_integer()) -> {ok, value()} | {error, error()}.
table_get(Inst, Name, Index) -> wasmtime_table:get(Inst, wasmtime_text:name(Name), Index).

%% @doc Sets an element of an exported table. Errors are those of {@link table_get/3}, and
%% `wrong_instance' of class `call'.
-spec table_set(instance(), iodata(), non_neg_integer(), value()) -> ok | {error, error()}.
table_set(Inst, Name, Index, Value) ->
    wasmtime_table:set(Inst, wasmtime_text:name(Name), Index, Value).

%% @equiv table_grow(Inst, Name, Count, null)
-spec table_grow(instance(), iodata(), non_neg_integer()) ->
          {ok, non_neg_integer()} | {error, error()}.
table_grow(Inst, Name, Count) -> table_grow(Inst, Name, Count, null).

%% @doc Adds `Count' elements to an exported table, each `Value'; gives the size before. Errors are
%% those of {@link table_size/2}, `table_limit' of class `limit' (`max_table_elements') or `table'
%% (its own maximum), `out_of_memory' of class `limit', and `wrong_instance' of class `call'.
-spec table_grow(instance(), iodata(), non_neg_integer(), value()) ->
          {ok, non_neg_integer()} | {error, error()}.
table_grow(Inst, Name, Count, Value) ->
    wasmtime_table:grow(Inst, wasmtime_text:name(Name), Count, Value).

%% ---- references -----------------------------------------------------------------------------

%% @doc A reference to an exported function. Errors: class `call' (`unknown_export', `badarg', `busy'
%% while the guest runs, `destroyed').
-spec funcref(instance(), iodata()) -> {ok, ref()} | {error, error()}.
funcref(Inst, Name) -> wasmtime_ref:func(Inst, wasmtime_text:name(Name)).

%% @doc A reference to a copy of an Erlang term, which a guest takes where it wants an `externref'. It
%% cannot look inside; it can keep it and give it back. Errors: class `call' (`busy' while the guest
%% runs, `destroyed'), `limit' (`memory_limit', `out_of_memory': {@link gc/1} may make room).
-spec externref(instance(), term()) -> {ok, ref()} | {error, error()}.
externref(#wasmtime_instance{ref = Inst}, Term) -> wasmtime_nif:extern_new(Inst, Term);
externref(_, _) -> ?BADARG(instance).

%% @doc The term behind an `externref', also one that was made an `anyref', and while its guest runs. Errors: class `ref', kind `badarg'
%% for a reference that holds no Erlang term.
-spec externref_data(ref()) -> {ok, term()} | {error, error()}.
externref_data(Ref) -> wasmtime_ref:data(Ref).

%% @doc What a reference refers to: its `kind', and as texts of WebAssembly types the `params' and
%% `results' of a function, the `fields' of a struct, the `element' of an array.
-spec ref_info(ref()) -> ref_info().
ref_info(Ref) -> wasmtime_ref:info(Ref).

%% @doc Collects the garbage of the guest's heap now. Objects in a cycle are not found before the
%% instance ends. Errors: class `call' (`busy' while the guest runs, `destroyed').
-spec gc(instance()) -> ok | {error, error()}.
gc(#wasmtime_instance{ref = Ref}) -> wasmtime_nif:heap_collect(Ref);
gc(_) -> ?BADARG(instance).

%% @doc A new struct of a type of this instance's module (see {@type object_type()}), with its fields in
%% their order. Errors: class `ref' (`badarg' for a type that is none, or a field of the wrong type;
%% `badarity'), class `limit' (`memory_limit', `out_of_memory': {@link gc/1} may make room), class
%% `call' (`busy' while the guest runs, `destroyed', `wrong_instance').
-spec struct_new(instance(), object_type(), [value()]) -> {ok, ref()} | {error, error()}.
struct_new(Inst, Type, Fields) -> wasmtime_ref:struct_new(Inst, Type, Fields).

%% @doc A field of a struct; `Field' counts from 0. A field of 8 or 16 bits gives an unsigned integer.
%% Errors: class `ref' (`badarg' for a reference of another kind, `out_of_bounds') and class `call'
%% (`busy' while the guest runs, `destroyed').
-spec struct_get(ref(), non_neg_integer()) -> {ok, value()} | {error, error()}.
struct_get(Ref, Field) -> wasmtime_ref:struct_get(Ref, Field).

%% @doc Sets a field of a struct. One of 8 bits takes -128..255, one of 16 bits -32768..65535. Errors
%% are those of {@link struct_get/2}, `immutable' of class `ref', and `wrong_instance' of class `call'.
-spec struct_set(ref(), non_neg_integer(), value()) -> ok | {error, error()}.
struct_set(Ref, Field, Value) -> wasmtime_ref:struct_set(Ref, Field, Value).

%% @doc A new array of a type of this instance's module. `Elements' are a list, `{Count, Value}', or
%% the bytes of an array of i8. Errors are those of {@link struct_new/3}, and `allocation_too_large'
%% of class `trap'.
-spec array_new(instance(), object_type(), [value()] | {non_neg_integer(), value()} | binary()) ->
          {ok, ref()} | {error, error()}.
array_new(Inst, Type, Elements) -> wasmtime_ref:array_new(Inst, Type, Elements).

%% @doc How many elements an array has. Errors are those of {@link struct_get/2}.
-spec array_len(ref()) -> {ok, non_neg_integer()} | {error, error()}.
array_len(Ref) -> wasmtime_ref:array_len(Ref).

%% @doc An element of an array; `Index' counts from 0. As {@link struct_get/2} otherwise.
-spec array_get(ref(), non_neg_integer()) -> {ok, value()} | {error, error()}.
array_get(Ref, Index) -> wasmtime_ref:array_get(Ref, Index).

%% @doc Sets an element of an array. As {@link struct_set/3} otherwise.
-spec array_set(ref(), non_neg_integer(), value()) -> ok | {error, error()}.
array_set(Ref, Index, Value) -> wasmtime_ref:array_set(Ref, Index, Value).

%% ---- streams --------------------------------------------------------------------------------

%% @doc Sends a message to the guest: `erlang.recv' receives it whole, and with `stdin => stream' its
%% bytes are standard input. Messages keep their order; any process may send, also while the guest
%% runs. See docs/streams.md.
%%
%% Errors: class `stream' (`inbox_full': nothing of it was taken, `closed', `badarg') and class `call'
%% (`destroyed').
-spec send(instance(), iodata()) -> ok | {error, error()}.
send(Inst, Data) -> wasmtime_stream:send(Inst, Data).

%% @doc Ends what is sent: the guest reads what is there, then the end of its input. Closing again is
%% fine. Errors: class `call' (`destroyed').
-spec close(instance()) -> ok | {error, error()}.
close(Inst) -> wasmtime_stream:close(Inst).

%% ---- helpers --------------------------------------------------------------------------------

%% Checks the options before the source is translated: that costs nothing.
with_source(Source, Check, Opts, Do) when is_binary(Source); is_tuple(Source) ->
    case Check(Opts) of
        {ok, Complete} ->
            case wasm(Source) of
                {ok, Wasm} -> wasmtime_engine:with_room(fun() -> Do(Wasm, Complete) end);
                Error -> Error
            end;
        Error ->
            Error
    end;
with_source(_, _, _, _) ->
    ?BADARG(source).

wasm(Wasm) when is_binary(Wasm) ->
    {ok, Wasm};
wasm({wat, Text}) when is_binary(Text); is_list(Text) ->
    case wasmtime_text:source(Text) of
        {ok, Bin} -> wasmtime_nif:module_wat2wasm(Bin);
        error -> {error, wasmtime_error:new(compile, malformed, <<"the text is not UTF-8">>)}
    end;
wasm(_) ->
    ?BADARG(source).

default_or_fuel(Load) ->
    case Load(#{}) of
        {error, #{kind := incompatible}} = Error ->
            case Load(#{fuel => true}) of
                {ok, Mod} -> {ok, Mod};
                _ -> Error
            end;
        Result ->
            Result
    end.

badarg(Class, Text) ->
    {error, wasmtime_error:badarg(Class, list_to_binary(Text))}.
