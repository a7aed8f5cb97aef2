%% Guests that use up time, stack, memory and tables, alone and through their host. Each attack has one
%% answer; the instance and the VM go on, and nothing is left behind.
-module(hostile_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

suite() -> wasmtime_test:suite().

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), preview1:warm_up(), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

init_per_testcase(_, Config) -> [{alive, preview1:alive()} | Config].

end_per_testcase(_, Config) -> preview1:left_behind(proplists:get_value(alive, Config)).

-define(PAGE, 65536).
-define(MAX_TABLE, 10_000_000).

with(Fun) -> with(fun(_, [X]) -> {ok, [X]} end, Fun).

with(Host, Fun) -> with(Host, #{}, Fun).

%% Afterwards the instance still answers.
with(Host, Opts, Fun) ->
    wasmtime_test:with_inst(hostile, Opts#{{"env", "host"} => Host}, fun(Inst) ->
        Result = Fun(Inst),
        ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
        Result
    end).

call(Inst, Name, Args) -> call(Inst, Name, Args, #{timeout => 60_000}).

call(Inst, Name, Args, Opts) ->
    case wasmtime:call(Inst, atom_to_binary(Name), Args, Opts) of
        {ok, Values} -> Values;
        {error, #{class := Class, kind := Kind}} -> {Class, Kind}
    end.

%% ---- time -----------------------------------------------------------------------------------

%% An endless loop, of whatever it is made, ends at its deadline, by an interrupt, and with its caller.
t_endless_loops(_) ->
    with(fun(Inst) ->
        [begin
             ?assertEqual({Name, {trap, timeout}}, {Name, call(Inst, Name, [], #{timeout => 30})}),
             {Pid, Monitor} = caller(fun() -> call(Inst, Name, []) end),
             wasmtime_test:calling(Pid),
             wasmtime_test:wait_until(fun() -> wasmtime:interrupt(Inst) =:= ok end),
             receive {Pid, Answer} -> ?assertEqual({trap, interrupt}, Answer) end,
             receive {'DOWN', Monitor, _, _, _} -> ok end,
             {Killed, Other} = caller(fun() -> call(Inst, Name, []) end),
             wasmtime_test:calling(Killed),
             exit(Killed, kill),
             receive {'DOWN', Other, _, _, Reason} -> ?assertEqual(killed, Reason) end
         end || Name <- [loop, loop_memory, host_loop, grow_refused_for_ever]]
    end).

%% As many guests that never end as there are schedulers, and more: the others still get their turn.
t_loops_everywhere(_) ->
    Mod = mod(hostile),
    Options = #{{"env", "host"} => fun(_, [X]) -> {ok, [X]} end},
    Loops = [begin
                 Inst = wasmtime_test:inst(Mod, Options),
                 {Pid, Monitor} = caller(fun() -> call(Inst, loop, [], #{}) end),
                 {Inst, Pid, Monitor}
             end || _ <- lists:seq(1, 4 * erlang:system_info(schedulers_online))],
    with(fun(Inst) -> [?assertEqual([I], call(Inst, host, [I])) || I <- lists:seq(1, 20)] end),
    [begin
         ok = wasmtime:destroy(Inst),
         receive {Pid, Answer} -> ?assertEqual({call, destroyed}, Answer) end,
         receive {'DOWN', Monitor, _, _, _} -> ok end
     end || {Inst, Pid, Monitor} <- Loops].

%% A start section that never ends holds nobody but its caller, and ends with it.
t_endless_start(_) ->
    Mod = mod(start_loop),
    [begin
         {Pid, Monitor} = caller(fun() -> wasmtime_test:instantiate(Mod) end),
         wasmtime_test:wait_until(fun() -> maps:get(stores, wasmtime_nif:live()) >= 1 end),
         exit(Pid, kill),
         receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(killed, Reason) end,
         wasmtime_test:wait_until(fun() -> maps:get(stores, wasmtime_nif:live()) =:= 0 end)
     end || _ <- lists:seq(1, wasmtime_test:rounds(3, 10, 100))].

%% ---- stack ----------------------------------------------------------------------------------

%% Recursion without an end is a trap, however it goes round, and however often it is tried.
t_recursion(_) ->
    with(fun(Inst) ->
        [?assertEqual({Name, {trap, stack_overflow}}, {Name, call(Inst, Name, Args)})
         || _ <- [1, 2, 3],
            {Name, Args} <- [{deep, []}, {even, [0]}, {indirect, []}, {descend, [-1]},
                             {host_then_deep, []}]]
    end).

%% From any depth that the guest reaches, calling the host works: it has a stack of its own.
t_host_call_from_depth(_) ->
    with(fun(Inst) ->
        Deepest = deepest(Inst, 0, 1_000_000),
        ?assert(Deepest > 10_000, Deepest),
        [?assertEqual([7], call(Inst, descend, [Deepest - I])) || I <- lists:seq(0, 50)],
        ?assertEqual({trap, stack_overflow}, call(Inst, descend, [Deepest + 1]))
    end).

deepest(_, Low, High) when High - Low =< 1 -> Low;
deepest(Inst, Low, High) ->
    Middle = (Low + High) div 2,
    case call(Inst, descend, [Middle]) of
        [7] -> deepest(Inst, Middle, High);
        {trap, stack_overflow} -> deepest(Inst, Low, Middle)
    end.

%% Calls of the host that call back, each from as deep as can be, end in an error of the innermost
%% before any stack does.
t_endless_nesting(_) ->
    Nested = fun(Name, Args) ->
        fun(Inst, _) -> counters:add(persistent_term:get(?MODULE), 1, 1),
                        wasmtime:call(Inst, Name, Args)
        end
    end,
    [begin
         persistent_term:put(?MODULE, counters:new(1, [])),
         with(Nested(Name, Args), fun(Inst) ->
             ?assertEqual({host, host_error}, call(Inst, host, [1])),
             Depth = counters:get(persistent_term:get(?MODULE), 1),
             ?assert(Depth >= 64 andalso Depth =< 66, Depth)
         end)
     end || {Name, Args} <- [{<<"host">>, [1]}, {<<"descend">>, [20_000]}]],
    persistent_term:erase(?MODULE).

%% An overflow inside a nested call is the nested call's; the one that waits goes on.
t_nested_overflow(_) ->
    with(fun(Inst, [X]) ->
             ?assertEqual({trap, stack_overflow}, call(Inst, deep, [])),
             ?assertEqual({trap, timeout}, call(Inst, loop, [], #{timeout => 20})),
             ?assertEqual({trap, memory_out_of_bounds}, call(Inst, load64, [-1])),
             {ok, [X + 1]}
         end,
         fun(Inst) ->
             ?assertEqual([6], call(Inst, host, [5])),
             ?assertEqual([8], call(Inst, descend, [30_000]))
         end).

%% Two instances whose host functions call each other without an end: the same limit.
t_two_instances_in_a_ring(_) ->
    Mod = mod(hostile),
    Self = self(),
    Call = fun(Key) -> fun(_, [X]) -> wasmtime:call(get(Key), <<"host">>, [X]) end end,
    One = wasmtime_test:inst(Mod, #{{"env", "host"} => Call(two)}),
    Two = wasmtime_test:inst(Mod, #{{"env", "host"} => Call(one)}),
    put(one, One),
    put(two, Two),
    ?assertEqual({host, host_error}, call(One, host, [1])),
    [?assertEqual([1], call(Inst, ok, [])) || Inst <- [One, Two]],
    ?assertEqual(Self, self()),
    erase(),
    [ok = wasmtime:destroy(Inst) || Inst <- [One, Two]].

%% ---- growth ---------------------------------------------------------------------------------

%% A memory grows to its limit and no page further, in steps of any size, touched or not.
t_memory_growth(_) ->
    Limit = 64 * ?PAGE,
    Grown = fun(Opts, Name, Args, Answer, Pages) ->
        with(fun(_, [X]) -> {ok, [X]} end, Opts, fun(Inst) ->
            ?assertEqual({Name, Args, [Answer]}, {Name, Args, call(Inst, Name, Args)}),
            ?assertEqual({ok, {Pages, Pages * ?PAGE}}, wasmtime:memory_size(Inst))
        end)
    end,
    Limited = #{memory_limit => Limit},
    Grown(Limited, grow_memory, [1], 63, 64),
    Grown(Limited, grow_memory, [7], 9, 64),
    Grown(Limited, grow_memory, [64], 0, 1),
    Grown(Limited, grow_memory, [-1], 0, 1),
    Grown(Limited, grow_and_touch, [], 49, 49),
    Grown(#{total_memory_limit => Limit}, grow_memory, [1], 63, 64),
    Grown(#{memory_limit => unlimited}, grow_memory, [65535], 1, 65536),
    Grown(#{}, grow_memory, [1], 4095, 4096).

%% The same in a pool, whose slots come back clean.
t_memory_growth_pooled(_) ->
    wasmtime_test:with_pool(hostile, #{instances => 1, max_memory => 64 * ?PAGE}, fun(Mod) ->
        [begin
             Inst = wasmtime_test:inst(Mod, #{{"env", "host"} => fun(_, [X]) -> {ok, [X]} end}),
             ?assertEqual({ok, {1, ?PAGE}}, wasmtime:memory_size(Inst)),
             ?assertEqual([49], call(Inst, grow_and_touch, [])),
             ok = wasmtime:destroy(Inst)
         end || _ <- lists:seq(1, wasmtime_test:rounds(5, 30, 300))]
    end).

%% A table grows to its limit and no element further.
t_table_growth(_) ->
    with(fun(_, [X]) -> {ok, [X]} end, #{max_table_elements => 1000}, fun(Inst) ->
        ?assertEqual([1], call(Inst, grow_table, [1000])),
        ?assertEqual([1], call(Inst, grow_table, [-1])),
        ?assertEqual([991], call(Inst, grow_table, [99])),
        ?assertEqual([1000], call(Inst, grow_table, [1]))
    end),
    with(fun(Inst) -> ?assertEqual([?MAX_TABLE], call(Inst, grow_table, [?MAX_TABLE - 1])) end).

%% Many instances at once, all of them grown and called: none holds a thread when it is idle.
t_many_instances(_) ->
    Mod = mod(hostile),
    Many = wasmtime_test:rounds(100, 500, 2000),
    {Threads, _} = wasmtime_test:resources(),
    Insts = [begin
                 Inst = wasmtime_test:inst(Mod, #{{"env", "host"} => fun(_, [X]) -> {ok, [X]} end}),
                 ?assertEqual([15], call(Inst, grow_memory, [256])),
                 Inst
             end || _ <- lists:seq(1, Many)],
    {Now, _} = wasmtime_test:resources(),
    ?assert(Now =< Threads + 4, {Threads, Now}),
    [ok = wasmtime:destroy(Inst) || Inst <- Insts].

%% ---- ranges ---------------------------------------------------------------------------------

%% Bulk instructions and accesses whose ranges reach beyond the end, or wrap around: a trap, and nothing
%% was written, not even the part that is inside.
t_ranges(_) ->
    with(fun(Inst) ->
        Before = wasmtime:read_memory(Inst, 0, ?PAGE),
        Max = 16#FFFFFFFF,
        Half = 16#80000000,
        Memory = [{fill, [0, 1, ?PAGE + 1]}, {fill, [?PAGE - 1, 1, 2]}, {fill, [0, 1, Max]},
                  {fill, [Max, 1, Max]}, {fill, [Max, 1, 1]}, {fill, [1, 1, Max]}, {fill, [Half, 1, Half]},
                  {fill, [?PAGE + 1, 1, 0]}, {copy, [0, 1, ?PAGE]}, {copy, [1, 0, ?PAGE]},
                  {copy, [0, Max, Max]}, {copy, [Max, 0, 1]}, {copy, [Half, Half, Half]},
                  {copy, [0, ?PAGE + 1, 0]}, {init, [0, 0, 11]}, {init, [0, 10, 1]}, {init, [0, Max, 1]},
                  {init, [Max, 0, 1]}, {init, [?PAGE, 0, 1]}, {init, [0, 11, 0]}, {load8, [0]},
                  {load8, [Max]}, {load64, [?PAGE - 7]}, {load64, [Max]}, {store64, [?PAGE - 7]},
                  {store64, [Max - 7]}],
        Table = [{table_fill, [0, 2]}, {table_fill, [1, 1]}, {table_fill, [0, Max]},
                 {table_fill, [Max, 1]}, {table_copy, [0, 1, 1]}, {table_copy, [1, 0, 1]},
                 {table_copy, [0, 0, Max]}, {table_copy, [Max, Max, Max]}, {table_init, [0, 0, 2]},
                 {table_init, [0, 2, 1]}, {table_init, [0, Max, 1]}, {table_init, [Max, 0, 1]}],
        [?assertEqual({Call, {trap, Kind}}, {Call, call(Inst, Name, Args)})
         || {Kind, Calls} <- [{memory_out_of_bounds, Memory}, {table_out_of_bounds, Table}],
            {Name, Args} = Call <- Calls],
        ?assertEqual(Before, wasmtime:read_memory(Inst, 0, ?PAGE)),
        [?assertEqual({Call, []}, {Call, call(Inst, Name, Args)})
         || {Name, Args} = Call <- [{fill, [0, 0, ?PAGE]}, {fill, [?PAGE, 1, 0]},
                                    {copy, [0, 0, ?PAGE]}, {copy, [?PAGE, ?PAGE, 0]},
                                    {init, [?PAGE - 10, 0, 10]}, {init, [?PAGE, 10, 0]},
                                    {table_fill, [0, 1]}, {table_init, [0, 1, 1]}, {drop, []},
                                    {init, [0, 0, 0]}, {store64, [?PAGE - 8]}]],
        ?assertEqual({trap, memory_out_of_bounds}, call(Inst, init, [0, 0, 1])),
        ?assertEqual([-1], call(Inst, load64, [?PAGE - 8]))
    end).

%% A bulk instruction over all of a large memory is done as a whole; a deadline that passes meanwhile
%% is answered right after it.
t_bulk_over_all(_) ->
    with(fun(Inst) ->
        [255] = call(Inst, grow_memory, [16]),
        All = 255 * 16 * ?PAGE,
        ?assertEqual([], call(Inst, fill, [0, 170, All])),
        ?assertEqual([], call(Inst, copy, [0, 1, All - 1])),
        ?assert(lists:member(call(Inst, fill, [0, 1, All], #{timeout => 1}), [[], {trap, timeout}])),
        ?assertEqual({trap, timeout}, call(Inst, loop_memory, [], #{timeout => 20}))
    end).

%% A guest that waits for an address could never be stopped: such code is refused where it could wait,
%% and traps where it could not.
t_atomic_wait(_) ->
    Wait = fun(Memory, Kind) ->
        {wat, ["(module (memory ", Memory, ") (func (export \"f\") (drop (memory.atomic.wait", Kind,
               " (i32.const 0) (i", Kind, ".const 0) (i64.const -1)))))"]}
    end,
    Threads = #{proposals => #{threads => true}},
    [begin
         ?assertMatch(?WASMTIME_ERROR(compile, unsupported),
                      wasmtime:compile(Wait("1 1 shared", Kind), Threads)),
         wasmtime_test:with_inst(wasmtime_test:mod(Wait("1", Kind), Threads), #{}, fun(Inst) ->
             ?assertMatch(?WASMTIME_TRAP(atomic_wait_non_shared_memory),
                          wasmtime:call(Inst, <<"f">>, []))
         end)
     end || Kind <- ["32", "64"]].
