%% Guests that abuse garbage-collected objects and exceptions: heaps filled up, rings, deep lists, casts,
%% throws through the host. Each attack has one answer, and the instance goes on.
-module(hostile_gc_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

suite() -> wasmtime_test:suite().

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), preview1:warm_up(), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

init_per_testcase(_, Config) -> [{alive, preview1:alive()} | Config].

end_per_testcase(_, Config) -> preview1:left_behind(proplists:get_value(alive, Config)).

-define(MIB, 1048576).

%% A guest of objects whose heap may have so many bytes.
objects(Bytes, Fun) ->
    Proposals = #{gc => true, function_references => true},
    run(wasmtime_test:mod(hostile_gc, #{proposals => Proposals}), #{memory_limit => Bytes}, Fun).

exceptions(Host, Fun) ->
    Mod = wasmtime_test:mod(hostile_exceptions, #{proposals => #{exceptions => true}}),
    run(Mod, #{{"env", "host"} => Host}, Fun).

run(Mod, Opts, Fun) ->
    wasmtime_test:with_inst(Mod, Opts, fun(Inst) ->
        Fun(Inst),
        ?assertEqual([1], call(Inst, ok, []))
    end).

call(Inst, Name, Args) -> call(Inst, Name, Args, #{timeout => 60_000}).

call(Inst, Name, Args, Opts) ->
    case wasmtime:call(Inst, atom_to_binary(Name), Args, Opts) of
        {ok, Values} -> Values;
        {error, #{class := Class, kind := Kind}} -> {Class, Kind}
    end.

%% The heap's own limit, or what the instance may have.
-define(FULL, [{limit, memory_limit}, {limit, out_of_memory}]).

full(Answer) -> ?assert(lists:member(Answer, ?FULL), Answer).

%% ---- objects --------------------------------------------------------------------------------

%% A list that is kept without an end fills the heap to its limit. What is let go can be used again.
t_keep_all(_) ->
    objects(4 * ?MIB, fun(Inst) ->
        [begin
             full(call(Inst, keep_all, [])),
             full(call(Inst, keep_all, [])),
             ?assertEqual([1], call(Inst, ok, [])),
             ?assertEqual([], call(Inst, forget, [])),
             ?assertEqual([100], call(Inst, deep, [100]))
         end || _ <- [1, 2, 3]]
    end).

%% Garbage without an end fits into a small heap.
t_garbage(_) ->
    objects(4 * ?MIB, fun(Inst) ->
        Many = wasmtime_test:rounds(100_000, 1_000_000, 10_000_000),
        ?assertEqual([1], call(Inst, garbage, [Many])),
        ?assertEqual({trap, timeout}, call(Inst, arrays_for_ever, [], #{timeout => 50}))
    end).

%% Rings are not collected by counting references: they fill the heap, which ends with the instance.
t_rings(_) ->
    objects(2 * ?MIB, fun(Inst) ->
        ?assertEqual([1], call(Inst, rings, [1000])),
        full(call(Inst, rings, [10_000_000]))
    end),
    objects(2 * ?MIB, fun(Inst) -> ?assertEqual([1], call(Inst, rings, [1000])) end).

%% A list so deep that whoever walked it by recursion would have no stack left, freed at once.
t_deep_list(_) ->
    Deep = wasmtime_test:rounds(100_000, 500_000, 2_000_000),
    objects(256 * ?MIB, fun(Inst) ->
        [begin
             ?assertEqual([Deep], call(Inst, deep, [Deep])),
             ?assertEqual([], call(Inst, forget, [])),
             ?assertEqual([1], call(Inst, garbage, [1000]))
         end || _ <- [1, 2]]
    end).

%% Arrays of any length: those beyond what can be are a trap, those beyond the heap its limit.
t_huge_arrays(_) ->
    objects(16 * ?MIB, fun(Inst) ->
        [?assertEqual({N, {trap, allocation_too_large}}, {N, call(Inst, array, [N])})
         || N <- [-1, 16#80000000, 16#7FFFFFFF, 16#20000000]],
        [full(call(Inst, array, [N])) || N <- [4 * ?MIB, 64 * ?MIB]],
        ?assertEqual([100_000], call(Inst, array, [100_000])),
        [?assertEqual({Call, {trap, array_out_of_bounds}}, {Call, call(Inst, Name, Args)})
         || {Name, Args} = Call <- [{array_get, [10]}, {array_get, [-1]}, {array_fill, [0, 11]},
                                    {array_fill, [0, -1]}, {array_fill, [-1, 1]}, {array_fill, [11, 0]},
                                    {array_copy, [0, 0, 11]}, {array_copy, [-1, 0, 1]},
                                    {array_copy, [0, -1, -1]}, {array_copy, [10, 10, 1]}]],
        ?assertEqual([], call(Inst, array_fill, [0, 10])),
        ?assertEqual([], call(Inst, array_copy, [10, 10, 0])),
        ?assertEqual([0], call(Inst, array_get, [9]))
    end).

%% Casts to what an object is not, whatever it is.
t_casts(_) ->
    objects(16 * ?MIB, fun(Inst) ->
        ?assertEqual([[], {trap, cast_failure}, {trap, cast_failure}, {trap, cast_failure},
                      {trap, null_reference}],
                     [call(Inst, cast, [What]) || What <- [0, 1, 2, 3, 4]]),
        ?assertEqual({trap, timeout}, call(Inst, casts_for_ever, [], #{timeout => 50}))
    end).

%% ---- exceptions -----------------------------------------------------------------------------

%% An exception that nobody catches ends its call, however often.
t_uncaught(_) ->
    exceptions(fun(_, [X]) -> {ok, [X]} end, fun(Inst) ->
        [?assertEqual({trap, uncaught_exception}, call(Inst, throw, [I])) || I <- lists:seq(1, 200)],
        ?assertEqual([1], call(Inst, storm, [wasmtime_test:rounds(10_000, 100_000, 1_000_000)])),
        ?assertEqual([1000], call(Inst, nest, [1000])),
        ?assertEqual({trap, stack_overflow}, call(Inst, nest, [10_000_000]))
    end).

%% An exception does not go through the host: it is an error of the call that the host made.
t_through_the_host(_) ->
    Host = fun(Inst, [0]) -> wasmtime:call(Inst, <<"throw">>, [1]);
              (Inst, [1]) -> {error, #{kind := uncaught_exception}} = wasmtime:call(Inst, <<"throw">>, [1]),
                             {ok, [7]};
              (_, [2]) -> throw(mine);
              (Inst, [3]) -> wasmtime:call(Inst, <<"storm">>, [100])
           end,
    exceptions(Host, fun(Inst) ->
        [?assertEqual({Name, X, Answer}, {Name, X, call(Inst, Name, [X])})
         || Name <- [host, catch_host],
            {X, Answer} <- [{0, {host, host_error}}, {1, [7]}, {2, {host, host_error}}, {3, [1]}]]
    end).

%% What is no exception cannot be caught: traps, an overflow, a deadline.
t_cannot_be_caught(_) ->
    exceptions(fun(_, [X]) -> {ok, [X]} end, fun(Inst) ->
        ?assertEqual({trap, unreachable}, call(Inst, catch_trap, [])),
        ?assertEqual({trap, stack_overflow}, call(Inst, catch_overflow, [])),
        ?assertEqual({trap, timeout}, call(Inst, catch_timeout, [], #{timeout => 30}))
    end).
