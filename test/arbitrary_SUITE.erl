%% No term given to a public function raises anything but the documented `badarg', and every error
%% is one of the table. Rule: each round has handles of its own and runs in a process of its own, so
%% that a destroyed instance or a stray message meets no other round.
-module(arbitrary_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(proper_types, [any/0, oneof/1, frequency/1, integer/0, binary/0, list/1, tuple/1, atom/0,
                       exactly/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) ->
    wasmtime_test:use(Runner),
    [{runner, Runner} | Config].

end_per_group(_, _) -> ok.

suite() -> wasmtime_test:suite().

%% How long a round may take before it counts as hung.
-define(HUNG, 30_000).

%% Any function with any arguments: a value of its own, a well-formed error, or a `badarg' whose
%% first argument deserves it.
t_any_function(Config) ->
    holds(function(), Config, wasmtime_test:rounds(3_000, 10_000, 200_000)).

%% The server and the pool likewise: whoever they are asked as.
t_any_server_or_pool_function(Config) ->
    holds(service_function(), Config, wasmtime_test:rounds(1_000, 4_000, 50_000)).

%% Any instance options, whose values are often nearly right.
t_any_instance_options(Config) ->
    holds({wasmtime, exactly(instantiate), [exactly(module), options(instance_keys())]}, Config,
          wasmtime_test:rounds(1_000, 4_000, 50_000)).

%% Any compile options, whose values are often nearly right.
t_any_compile_options(Config) ->
    holds({wasmtime, exactly(validate), [exactly(wasm), options(compile_keys())]}, Config,
          wasmtime_test:rounds(1_000, 4_000, 50_000)).

%% Any answer of a host function is an answer, or a `host_error'.
t_any_host_answer(_) ->
    property(anything(), fun(Term) ->
        Opts = wasmtime_test:one(fun(_, _) -> Term end),
        wasmtime_test:with_inst(host, Opts, fun(Inst) ->
            case wasmtime:call(Inst, "one", [1]) of
                {ok, [Value]} -> Term =:= {ok, [Value]} orelse {ok, [Value]} =:= wrapped(Term);
                {error, #{class := host, kind := host_error}} -> true
            end
        end)
    end, wasmtime_test:rounds(500, 3_000, 50_000)).

%% An i32 is given back signed.
wrapped({ok, [Value]}) when is_integer(Value), Value >= 16#80000000 ->
    {ok, [Value - 16#100000000]};
wrapped(_) ->
    none.

%% ---- generators -----------------------------------------------------------------------------

%% {Module, Name, Arguments}; handles are named by atoms, and made by the round.
function() ->
    Exports = wasmtime:module_info(exports) -- [{module_info, 0}, {module_info, 1}],
    oneof([{wasmtime, exactly(Name), arguments(first(Name), Arity)} || {Name, Arity} <- Exports]).

%% What users call of a server and a pool.
service_function() ->
    Functions = [{wasmtime_server, server, [{start_link, 1}, {child_spec, 1}, {call, 3}, {call, 4},
                                            {instance, 1}, {interrupt, 1}, {info, 1}, {reset, 1},
                                            {swap, 2}, {stop, 1}]},
                 {wasmtime_pool, pool, [{start_link, 1}, {child_spec, 1}, {request, 3},
                                        {request, 4}, {stats, 1}, {drain, 2}, {swap, 2}, {swap, 3},
                                        {stop, 1}, {stop, 2}]}],
    oneof([{Module, exactly(Name), arguments(service_first(Name, Sort), Arity)}
           || {Module, Sort, Names} <- Functions, {Name, Arity} <- Names]).

service_first(Name, _) when Name =:= start_link; Name =:= child_spec -> service_options;
service_first(_, Sort) -> Sort.

%% The first argument is usually of the right sort: what follows is looked at then.
arguments(_, 0) -> [];
arguments(First, Arity) ->
    [frequency([{6, first_argument(First)}, {2, handle()}, {2, anything()}])
     | [argument() || _ <- lists:seq(2, Arity)]].

first_argument(service_options) ->
    options([module, name, instance, size, queue, timeout, telemetry, unknown] ++ instance_keys());
first_argument(First) ->
    exactly(First).

first(Name) when Name =:= compile; Name =:= validate; Name =:= preinit; Name =:= cached -> wasm;
first(wat2wasm) -> text;
first(deserialize) -> artifact;
first(deserialize_file) -> path;
first(Name) when Name =:= serialize; Name =:= imports; Name =:= exports; Name =:= module_options;
                 Name =:= module_kind; Name =:= pool_info; Name =:= prepare;
                 Name =:= instantiate -> module;
first(Name) when Name =:= ref_info; Name =:= externref_data -> externref;
first(Name) when Name =:= struct_get; Name =:= struct_set -> struct;
first(Name) when Name =:= array_len; Name =:= array_get; Name =:= array_set -> array;
first(_) -> instance.

argument() ->
    frequency([{4, plausible()}, {1, handle()}, {3, anything()},
               {1, options(call_keys() ++ instance_keys() ++ compile_keys())}]).

handle() ->
    oneof([module, instance, destroyed, template, externref, funcref, struct, array, async, wasm,
           artifact]).

%% What some function takes at some place.
plausible() ->
    oneof([<<"add">>, "read", <<"table">>, <<"counter">>, "add1", [<<"a">>, $b], "memory", "", 0, 1,
           -1, 65535, 65536, 1 bsl 31, 1 bsl 32, 1 bsl 63, 1 bsl 64, -(1 bsl 63), 1.5, nan,
           infinity, null, {i31, 1}, {f32, 0}, {f64, 1 bsl 64}, <<0:128>>, [], [1], [1, 2],
           [externref], [funcref], [1, externref], #{}, [], ["add"], [{"add", [1, 2]}],
           list(integer()), binary(), {wat, "(module)"}, <<"a", 0>>, "a\0b", [256], [16#110000]]).

%% Options out of these keys.
options(Keys) ->
    Pair = {oneof([exactly(Key) || Key <- Keys]), oneof([plausible(), value(), anything()])},
    proper_types:bind(list(Pair), fun maps:from_list/1, false).

value() ->
    oneof([true, false, none, speed, pooling, on_demand, unlimited, infinity, inherit, capture,
           stream, thread, scheduler, read, monotonic, metadata, full, [{"/", "/nonexistent", read}],
           [{"A", "b"}], {binary, <<"x">>}, {binary, [a]}, {file, ""}, {file, <<0>>}, {"a"},
           #{instances => 1}, #{simd => false}, #{args => ["a"]}, #{stdin => {binary, "x"}},
           #{{"env", "one"} => 1}, #{a => b}, 1, 4, 65536]).

compile_keys() ->
    [fuel, opt_level, proposals, allocator, pooling, key, check, preinit, version, unknown, "fuel"].

instance_keys() ->
    [imports, wasi, memory_limit, total_memory_limit, max_tables, max_table_elements,
     max_instances, host_timeout, host, stream, inbox_limit, links, {"env", "one"}, {a, b},
     compile, remove_exports, unknown].

call_keys() -> [timeout, fuel, unknown].

%% Any term: also those that no generator of plain data makes.
anything() ->
    frequency([{5, any()}, {1, atom()}, {1, oneof([[a | b], [1 | 2], fun() -> ok end,
                                                    fun(_, _) -> {ok, []} end, dead(), make_ref(),
                                                    {ok, [1]}, {ok, 1}, {ok, [1 | 2]}, {error, x},
                                                    1 bsl 100, -(1 bsl 100), <<1:3>>, [[[[]]]],
                                                    #{a => #{}}, tuple([any(), any()])])}]).

%% A process of another sort would be waited for, as in every call of Erlang.
dead() -> wasmtime_test:in_process(fun() -> self() end).

%% ---- rounds ---------------------------------------------------------------------------------

holds(Generator, Config, Rounds) ->
    Shared = shared(Config),
    property(Generator, fun(Call) -> round(Call, Shared) end, Rounds).

property(Generator, Check, Rounds) ->
    Property = proper:forall(Generator, Check),
    case proper:quickcheck(Property, [{numtests, Rounds}, {to_file, user}, quiet, {max_size, 20},
                                      noshrink, long_result]) of
        true -> ok;
        Counterexample -> ct:fail({counterexample, Counterexample})
    end.

%% What rounds may share: nothing that a call changes.
shared(Config) ->
    Mod = wasmtime_test:mod(arbitrary, #{proposals => #{gc => true}}),
    {ok, Artifact} = wasmtime:serialize(wasmtime_test:mod(add)),
    Dir = wasmtime_test:temp(Config, "files"),
    #{module => Mod, wasm => wasmtime_test:wasm(add), artifact => Artifact, text => "(module)",
      path => wasmtime_test:write(Dir, "add.cwasm", Artifact)}.

%% Runs it in a process of its own; true, or why it is wrong.
round(Call, Shared) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({seen, look(Call, Shared)}) end),
    receive
        {'DOWN', Monitor, process, Pid, {seen, true}} -> true;
        {'DOWN', Monitor, process, Pid, Reason} -> wrong(Call, Reason)
    after ?HUNG ->
        Where = process_info(Pid, current_stacktrace),
        exit(Pid, kill),
        wrong(Call, {hung, Where})
    end.

wrong(Call, Reason) ->
    ct:pal("~0p~n~p", [Call, Reason]),
    false.

look({Module, Name, Args0}, Shared) ->
    %% What a service that ends says to its parent is nobody's here.
    process_flag(trap_exit, true),
    Handles = maps:merge(Shared, handles(Module, Shared)),
    Args = put_in(Args0, Handles),
    try apply(Module, Name, Args) of
        Result -> well_formed(Result) orelse {result, Result}
    catch
        error:badarg:Trace -> deserved(Module, Name, Args, Handles) orelse {undeserved, Trace};
        Class:Reason:Trace -> {Class, Reason, Trace}
    after
        ok = wasmtime:destroy(map_get(instance, Handles)),
        ended(Handles)
    end.

%% A service that its parent leaves behind would report a crash.
ended(#{service := Service}) ->
    Monitor = monitor(process, Service),
    exit(Service, shutdown),
    receive {'DOWN', Monitor, process, Service, _} -> ok end;
ended(_) ->
    ok.

handles(Module, #{module := Mod} = Shared) ->
    {ok, Inst} = wasmtime_test:instantiate(Mod),
    {ok, Gone} = wasmtime_test:instantiate(Mod),
    ok = wasmtime:destroy(Gone),
    maps:merge(#{instance => Inst, destroyed => Gone}, more_handles(Module, Inst, Shared)).

more_handles(wasmtime, Inst, #{module := Mod}) ->
    {ok, Template} = wasmtime:prepare(Mod, #{}),
    {ok, Extern} = wasmtime:externref(Inst, some),
    {ok, [Func]} = wasmtime:call(Inst, "func", []),
    {ok, [Struct]} = wasmtime:call(Inst, "struct", []),
    {ok, [Array]} = wasmtime:call(Inst, "array", []),
    {ok, Async} = wasmtime:call_async(Inst, "add", [1, 2]),
    #{template => Template, externref => Extern, funcref => Func, struct => Struct,
      array => Array, async => Async};
more_handles(wasmtime_server, _, #{module := Mod}) ->
    {ok, Server} = wasmtime_server:start_link(#{module => Mod}),
    #{server => Server, service => Server};
more_handles(wasmtime_pool, _, #{module := Mod}) ->
    {ok, Pool} = wasmtime_pool:start_link(#{module => Mod}),
    #{pool => Pool, service => Pool}.

%% Handles stand where their names were.
put_in(Name, Handles) when is_map_key(Name, Handles) -> map_get(Name, Handles);
put_in([Head | Tail], Handles) -> [put_in(Head, Handles) | put_in(Tail, Handles)];
put_in(Map, Handles) when is_map(Map) -> maps:map(fun(_, V) -> put_in(V, Handles) end, Map);
put_in(Term, _) -> Term.

%% A `badarg' exception says that the first argument is of the wrong sort.
deserved(wasmtime, Name, [First | _], Handles) ->
    not lists:member(First, [map_get(Key, Handles) || Key <- right(first(Name))]);
deserved(_, Name, [First | _], _) when Name =:= start_link; Name =:= child_spec ->
    not is_map(First);
deserved(_, _, [First | _], #{service := Service}) ->
    First =/= Service.

right(instance) -> [instance, destroyed];
right(Ref) when Ref =:= struct; Ref =:= array; Ref =:= externref ->
    [struct, array, externref, funcref];
right(First) ->
    [First].

well_formed({error, #{class := Class, kind := Kind, message := Message}}) ->
    Native = wasmtime_nif:classes_and_kinds(),
    Class =/= internal andalso lists:member({class, Class}, Native)
        andalso lists:member({kind, Kind}, Native) andalso is_binary(Message);
well_formed({error, {already_started, _}}) -> true;
well_formed({error, _}) -> false;
well_formed({ok, _}) -> true;
well_formed(Atom) when is_atom(Atom) -> lists:member(Atom, [ok, not_running, ignore, module]);
well_formed(Term) -> is_list(Term) orelse is_map(Term) orelse is_binary(Term)
                         orelse is_reference(Term).
