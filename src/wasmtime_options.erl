%% @doc Types of {@link wasmtime}: compile options, of instances, calls and pre-initialization. The functions are the library's own.
%% @end
%% Every option: its default, its check and its message, once; a clause per key. WASI's stand in
%% wasmtime_wasi. What comes out are the complete maps that native code reads by key.
-module(wasmtime_options).

-include("wasmtime_text.hrl").

-export([compile/1, instance/3, resolved/1, place/1, call/1, wait/1, preinit/1]).
-export([fold/4, refuse/2, refuse/3, integer/4, milliseconds/2, later/2, boolean/2, one_of/3]).
-export_type([compile/0, pooling/0, proposal/0, instance/0, call/0, preinit/0,
              host_fun/0, place/0]).

-type proposal() :: simd | relaxed_simd | relaxed_simd_deterministic | bulk_memory | multi_value
                  | multi_memory | memory64 | tail_call | wide_arithmetic | custom_page_sizes
                  | threads | reference_types | function_references | gc | exceptions.
-type pooling() :: #{instances => 1..10000,
                     max_memory => pos_integer(),
                     keep_resident => non_neg_integer(),
                     core_instances => 1..100000,
                     tables => 1..100000,
                     memories => 1..10000,
                     verify => boolean()}.
-type compile() :: #{fuel => boolean(),
                     opt_level => none | speed | speed_and_size,
                     proposals => #{proposal() => boolean()},
                     allocator => on_demand | pooling,
                     pooling => pooling()}.
-type host_fun() :: fun((wasmtime:instance(), [wasmtime:value()]) ->
                          {ok, [wasmtime:value()]} | {error, term()}).
-type limit() :: non_neg_integer() | unlimited.
-type instance() :: #{imports => #{{iodata(), iodata()} => host_fun()},
                      links => [{iodata(), wasmtime:wasm_module()}],
                      wasi => wasmtime_wasi:options(),
                      memory_limit => limit(),
                      total_memory_limit => limit(),
                      max_tables => limit(),
                      max_table_elements => limit(),
                      max_instances => limit(),
                      host_timeout => timeout(),
                      stream => pid(),
                      inbox_limit => non_neg_integer(),
                      host => pid(),
                      runner => thread | scheduler,
                      {iodata(), iodata()} => host_fun()}.
%% Where native code makes an instance: on a normal scheduler, or on a dirty one.
-type place() :: inline | cpu | io.
-type call() :: #{timeout => timeout(), fuel => non_neg_integer()}.
-type preinit() :: #{compile => compile(),
                     remove_exports => [iodata()],
                     atom() | {iodata(), iodata()} => term()}.

-define(KIB, 1024).
-define(MIB, 1048576).
-define(PAGE, 65536).
-define(MAX_MEMORY, 4294967296).
-define(MAX_U64, 16#FFFFFFFFFFFFFFFF).
%% Imports that are linked inline, and bytes of their names: about half a millisecond.
-define(MANY, 100).
-define(MUCH, 262144).
%% The longest wait that Erlang itself knows, in ms: 49 days.
-define(MAX_MS, 16#FFFFFFFF).

%% ---- compile --------------------------------------------------------------------------------

%% @doc The complete compile options.
%% @private
-spec compile(term()) -> {ok, map()} | {error, wasmtime_error:t()}.
compile(Opts) ->
    finish(fold(compile, Opts, fun compile_option/3, compile_defaults())).

compile_defaults() ->
    #{fuel => false, opt_level => speed, proposals => #{}, allocator => on_demand}.

compile_option(fuel, Value, Acc) ->
    Acc#{fuel := boolean(fuel, Value)};
compile_option(opt_level, Value, Acc) ->
    Acc#{opt_level := one_of(opt_level, Value, [none, speed, speed_and_size])};
compile_option(proposals, Value, Acc) ->
    Acc#{proposals := implied(section(proposals, Value, fun proposal/3, #{}))};
compile_option(allocator, Value, Acc) ->
    Acc#{allocator := one_of(allocator, Value, [on_demand, pooling])};
compile_option(pooling, Value, Acc) ->
    Acc#{pooling => pooled(section(pooling, Value, fun pooling/3, pooling_defaults()))};
compile_option(Key, _, _) ->
    refuse(Key, "unknown compile option ~0tp", [Key]).

%% The pool's options belong to an engine that has a pool, and always do.
finish({ok, #{allocator := pooling, pooling := _}} = Result) -> Result;
finish({ok, #{allocator := pooling} = Opts}) -> {ok, Opts#{pooling => pooled(pooling_defaults())}};
finish({ok, #{pooling := _}}) ->
    {error, wasmtime_error:badarg(compile, pooling, <<"pooling needs allocator => pooling">>)};
finish(Result) -> Result.

proposal(Key, Value, Acc) ->
    Known = [simd, relaxed_simd, relaxed_simd_deterministic, bulk_memory, multi_value,
             multi_memory, memory64, tail_call, wide_arithmetic, custom_page_sizes, threads,
             reference_types, function_references, gc, exceptions],
    lists:member(Key, Known) orelse refuse(Key, "unknown proposal ~0tp", [Key]),
    Acc#{Key => boolean(Key, Value)}.

%% Relaxed SIMD is made of SIMD.
implied(#{simd := false, relaxed_simd := true}) ->
    refuse(relaxed_simd, "relaxed_simd cannot be on while simd is off");
implied(#{simd := false} = Proposals) ->
    Proposals#{relaxed_simd => false};
implied(Proposals) ->
    Proposals.

pooling_defaults() ->
    #{instances => 1000, max_memory => 256 * ?MIB, keep_resident => 0, verify => false}.

pooling(instances, Value, Acc) ->
    Acc#{instances := integer(instances, Value, 1, 10000)};
pooling(max_memory, Value, Acc) ->
    Bytes = integer(max_memory, Value, ?PAGE, ?MAX_MEMORY),
    Bytes rem ?PAGE =:= 0
        orelse refuse(max_memory, "max_memory must be a multiple of 64 KiB, not ~w", [Value]),
    Acc#{max_memory := Bytes};
pooling(keep_resident, Value, Acc) ->
    Acc#{keep_resident := integer(keep_resident, Value, 0, ?MAX_MEMORY)};
pooling(core_instances, Value, Acc) ->
    Acc#{core_instances => integer(core_instances, Value, 1, 100000)};
pooling(tables, Value, Acc) ->
    Acc#{tables => integer(tables, Value, 1, 100000)};
pooling(memories, Value, Acc) ->
    Acc#{memories => integer(memories, Value, 1, 10000)};
pooling(verify, Value, Acc) ->
    Acc#{verify := boolean(verify, Value)};
pooling(Key, _, _) ->
    refuse(Key, "unknown pooling option ~0tp", [Key]).

%% What depends on other keys of the pool.
pooled(#{keep_resident := Keep, max_memory := Max}) when Keep > Max ->
    refuse(keep_resident, "keep_resident must be at most max_memory (~w), not ~w", [Max, Keep]);
pooled(#{instances := N} = Pool) ->
    maps:merge(#{core_instances => N, tables => N, memories => N}, Pool).

%% ---- instantiate ----------------------------------------------------------------------------

%% @doc The complete options of an instance of that kind of module, and its functions by name.
%% @private
-spec instance(wasmtime_error:class(), term(), module | component) ->
          {ok, map(), map()} | {error, wasmtime_error:t()}.
instance(Class, Opts, Kind) ->
    case fold(Class, Opts, fun instance_option/3, {instance_defaults(Kind), #{}}) of
        {ok, {Complete, Funs}} -> {ok, Complete#{imports := maps:keys(Funs)}, Funs};
        {error, _} = Error -> Error
    end.

instance_defaults(Kind) ->
    #{imports => [], links => [], wasi => undefined,
      memory_limit => 256 * ?MIB, total_memory_limit => infinity,
      max_tables => 100, max_table_elements => 10_000_000, max_instances => max_instances(Kind),
      host_timeout => 30_000, host => undefined, stream => undefined, inbox_limit => 16 * ?MIB,
      runner => thread}.

%% @doc Complete options as native code takes them: with what an instance inherits at this moment.
%% @private
-spec resolved(map()) -> map().
resolved(#{wasi := #{env := inherit} = Wasi} = Opts) -> Opts#{wasi := wasmtime_wasi:resolved(Wasi)};
resolved(Opts) -> Opts.

%% @doc Where an instance with these complete options is made: not on a normal scheduler when it would take
%% that too long.
%% @private
-spec place(map()) -> place().
place(#{imports := Imports, wasi := Wasi}) ->
    case wasmtime_wasi:opens_files(Wasi) of
        true -> io;
        false when length(Imports) > ?MANY -> cpu;
        false ->
            case iolist_size([[Module, Name] || {Module, Name} <- Imports]) > ?MUCH orelse wasmtime_wasi:is_large(Wasi) of
                true -> cpu;
                false -> inline
            end
    end.

%% A component is made of several core instances.
max_instances(module) -> 10;
max_instances(component) -> 100.

instance_option({_, _} = Key, Fun, {Acc, Funs}) ->
    {Acc, import(Key, Key, Fun, Funs)};
instance_option(imports, Value, {Acc, Funs}) when is_map(Value) ->
    {Acc, maps:fold(fun(Key, Fun, Sum) -> import(imports, Key, Fun, Sum) end, Funs, Value)};
instance_option(imports, _, _) ->
    refuse(imports, "imports must be a map of {Module, Name} to a function of two arguments");
instance_option(links, Value, {Acc, Funs}) when length(Value) >= 0 ->
    {Acc#{links := [linked(Link) || Link <- Value]}, Funs};
instance_option(links, _, _) ->
    refuse(links, "links must be a list of {Name, Module}");
instance_option(wasi, Value, {Acc, Funs}) ->
    Wasi = section(wasi, Value, fun wasmtime_wasi:option/3, wasmtime_wasi:defaults()),
    {Acc#{wasi := Wasi}, Funs};
instance_option(host_timeout, Value, {Acc, Funs}) ->
    {Acc#{host_timeout := milliseconds(host_timeout, Value)}, Funs};
instance_option(host, Value, {Acc, Funs}) ->
    {Acc#{host := process(host, Value)}, Funs};
instance_option(runner, Value, {Acc, Funs}) ->
    {Acc#{runner := one_of(runner, Value, [thread, scheduler])}, Funs};
instance_option(Key, Value, {Acc, Funs})
  when Key =:= memory_limit; Key =:= total_memory_limit; Key =:= max_tables;
       Key =:= max_table_elements; Key =:= max_instances ->
    {Acc#{Key := limit(Key, Value)}, Funs};
instance_option(stream, Value, {Acc, Funs}) ->
    {Acc#{stream := process(stream, Value)}, Funs};
instance_option(inbox_limit, Value, {Acc, Funs}) ->
    {Acc#{inbox_limit := integer(inbox_limit, Value, 0, ?MAX_U64)}, Funs};
instance_option(Key, _, _) ->
    refuse(Key, "unknown option ~0tp", [Key]).

import(At, {Module, Name} = Key, Fun, Funs) when is_function(Fun, 2) ->
    case {wasmtime_text:name(Module), wasmtime_text:name(Name)} of
        {{ok, M}, {ok, N}} when is_map_key({M, N}, Funs) ->
            refuse(At, "import ~0tp is given twice", [Key]);
        {{ok, M}, {ok, N}} ->
            Funs#{{M, N} => Fun};
        _ ->
            refuse(At, "import ~0tp: both names must be " ?TEXT, [Key])
    end;
import(At, {_, _} = Key, Other, _) ->
    refuse(At, "import ~0tp must be a function of two arguments, not ~0tp", [Key, Other]);
import(At, Key, _, _) ->
    refuse(At, "import ~0tp must be named {Module, Name}", [Key]).

linked({Name, Mod}) ->
    case {wasmtime_text:name(Name), is_module(Mod)} of
        {{ok, Bin}, true} -> {Bin, Mod};
        {error, _} -> refuse(links, "links: the name ~0tp must be " ?TEXT, [Name]);
        {_, false} -> refuse(links, "links: ~0tp is not a module", [Mod])
    end;
linked(Other) ->
    refuse(links, "links must be a list of {Name, Module}, not of ~0tp", [Other]).

is_module(Mod) ->
    try wasmtime_nif:module_kind(Mod) =:= module
    catch error:badarg -> false
    end.

%% ---- call and preinit -----------------------------------------------------------------------

%% @doc The complete options of a call.
%% @private
-spec call(term()) -> {ok, map()} | {error, wasmtime_error:t()}.
call(Opts) ->
    fold(call, Opts, fun call_option/3, #{timeout => infinity, fuel => undefined}).

%% @doc A time to wait.
%% @private
-spec wait(term()) -> {ok, timeout()} | {error, wasmtime_error:t()}.
wait(Timeout) ->
    fold(call, #{timeout => Timeout}, fun(Key, Value, _) -> milliseconds(Key, Value) end, infinity).

call_option(timeout, Value, Acc) -> Acc#{timeout := milliseconds(timeout, Value)};
call_option(fuel, Value, Acc) -> Acc#{fuel := integer(fuel, Value, 0, ?MAX_U64)};
call_option(Key, _, _) -> refuse(Key, "unknown call option ~0tp", [Key]).

%% @doc The complete compile options of the init run, the exports to remove, and the rest, which is
%% for the instance. One instance is run once: it takes no pool.
%% @private
-spec preinit(term()) -> {ok, map(), [binary()], map()} | {error, wasmtime_error:t()}.
preinit(Opts) when is_map(Opts) ->
    case {init_compile(Opts), removed(maps:get(remove_exports, Opts, []))} of
        {{ok, Compile}, {ok, Remove}} ->
            OnDemand = (maps:remove(pooling, Compile))#{allocator := on_demand},
            {ok, OnDemand, Remove, maps:without([compile, remove_exports], Opts)};
        {{error, _} = Error, _} -> Error;
        {_, Error} -> Error
    end;
preinit(_) ->
    not_a_map(preinit).

init_compile(#{compile := Compile}) when not is_map(Compile) ->
    {error, wasmtime_error:badarg(preinit, compile, <<"compile must be a map">>)};
init_compile(Opts) ->
    compile(maps:get(compile, Opts, #{})).

removed(Names) ->
    fold(preinit, #{remove_exports => Names}, fun removed/3, []).

removed(Key, Names, []) ->
    wasmtime_wasi:names(Key, Names, "must be a list of names, each " ?TEXT).

%% ---- checks ---------------------------------------------------------------------------------

%% @doc Takes every pair of a user's map into the accumulator; the first refusal is the answer.
%% @private
-spec fold(wasmtime_error:class(), term(), fun((term(), term(), Acc) -> Acc), Acc) ->
          {ok, Acc} | {error, wasmtime_error:t()}.
fold(Class, Opts, Check, Acc) when is_map(Opts) ->
    try {ok, maps:fold(Check, Acc, Opts)}
    catch throw:{refused, Key, Message} -> {error, wasmtime_error:badarg(Class, Key, Message)}
    end;
fold(Class, _, _, _) ->
    not_a_map(Class).

not_a_map(Class) ->
    {error, wasmtime_error:badarg(Class, options, <<"options must be a map">>)}.

%% A map inside the options.
section(_, Value, Check, Acc) when is_map(Value) -> maps:fold(Check, Acc, Value);
section(Key, _, _, _) -> refuse(Key, "~s must be a map", [Key]).

%% @doc Ends the check: this option is at fault.
%% @private
-spec refuse(term(), io:format()) -> no_return().
refuse(Key, Text) -> refuse(Key, Text, []).

%% @private
-spec refuse(term(), io:format(), [term()]) -> no_return().
refuse(Key, Format, Args) -> throw({refused, Key, wasmtime_error:text(Format, Args)}).

%% @private
-spec integer(atom(), term(), integer(), integer()) -> integer().
integer(_, Value, Min, Max) when is_integer(Value), Value >= Min, Value =< Max -> Value;
integer(Key, Value, Min, Max) ->
    refuse(Key, "~s must be an integer from ~w to ~w, not ~0tp", [Key, Min, Max, Value]).

%% @private
-spec boolean(atom(), term()) -> boolean().
boolean(_, Value) when is_boolean(Value) -> Value;
boolean(Key, Value) -> refuse(Key, "~s must be a boolean, not ~0tp", [Key, Value]).

%% @private
-spec one_of(atom(), term(), [atom()]) -> atom().
one_of(Key, Value, Values) ->
    lists:member(Value, Values)
        orelse refuse(Key, "~s must be one of ~0tp, not ~0tp", [Key, Values, Value]),
    Value.

limit(_, unlimited) -> infinity;
limit(_, Value) when is_integer(Value), Value >= 0, Value =< ?MAX_U64 -> Value;
limit(Key, Value) ->
    refuse(Key, "~s must be an integer from 0 to ~w or unlimited, not ~0tp",
           [Key, ?MAX_U64, Value]).

%% One that is dead by the time it is needed is not an error of the options.
process(_, Pid) when is_pid(Pid), node(Pid) =:= node() -> Pid;
process(Key, Value) -> refuse(Key, "~s must be a process of this node, not ~0tp", [Key, Value]).

%% @private
-spec milliseconds(atom(), term()) -> timeout().
milliseconds(_, infinity) -> infinity;
milliseconds(_, Value) when is_integer(Value), Value >= 0, Value =< ?MAX_MS -> Value;
milliseconds(Key, Value) ->
    refuse(Key, "~s must be milliseconds from 0 to ~w or infinity, not ~0tp",
           [Key, ?MAX_MS, Value]).

%% @doc So many ms more, as far as Erlang can wait.
%% @private
-spec later(timeout(), non_neg_integer()) -> timeout().
later(infinity, _) -> infinity;
later(Ms, More) when is_integer(Ms), is_integer(More) -> min(?MAX_MS, Ms + More).
