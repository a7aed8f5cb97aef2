%% Traps: a kind for each, a trace, and an instance that goes on.
-module(trap_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% The export is named after the trap it provokes.
provoked(Inst, Kind) ->
    Result = wasmtime:call(Inst, atom_to_binary(Kind), []),
    ?assertMatch({Kind, ?WASMTIME_TRAP(Kind)}, {Kind, Result}),
    Result.

t_kinds(_) ->
    Inst = inst(traps),
    [begin
         provoked(Inst, Kind),
         ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, []))
     end || Kind <- [stack_overflow, memory_out_of_bounds, table_out_of_bounds,
                     indirect_call_to_null, bad_signature, integer_overflow,
                     integer_division_by_zero, bad_conversion_to_integer, unreachable]],
    ok = wasmtime:destroy(Inst).

t_threads_kinds(_) ->
    Inst = inst(traps_threads, #{}, #{proposals => #{threads => true}}),
    [provoked(Inst, Kind) || Kind <- [heap_misaligned, atomic_wait_non_shared_memory]],
    ok = wasmtime:destroy(Inst).

t_gc_kinds(_) ->
    Inst = inst(traps_gc, #{}, #{proposals => #{gc => true, function_references => true}}),
    [provoked(Inst, Kind) || Kind <- [null_reference, array_out_of_bounds, allocation_too_large,
                                      cast_failure]],
    ok = wasmtime:destroy(Inst).

t_exception_kind(_) ->
    Inst = inst(traps_exceptions, #{}, #{proposals => #{exceptions => true}}),
    provoked(Inst, uncaught_exception),
    ok = wasmtime:destroy(Inst).

%% The trace goes from the innermost frame out, with the names of the name section.
t_trace(_) ->
    Inst = inst(traps),
    {error, #{trace := Trace}} = provoked(Inst, unreachable),
    ?assertMatch([#{func_name := <<"inner">>, module_name := <<"traps">>, func_index := _},
                  #{func_name := <<"outer">>}, #{func_index := _}], Trace),
    [?assert(is_integer(Index) andalso Index >= 0) || #{func_index := Index} <- Trace],
    [?assert(is_integer(Offset) andalso Offset >= 0) || #{func_offset := Offset} <- Trace],
    ok = wasmtime:destroy(Inst).

%% A trap in the start section refuses the instance.
t_start(_) ->
    ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime_test:instantiate(wasmtime_test:mod(start_trap))),
    ?assertEqual([], wasmtime_test:mailbox()).

%% A segment that does not fit does as well, also where segments become an image.
t_segment(_) ->
    ?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds),
                 wasmtime_test:instantiate(wasmtime_test:mod(segment_trap))),
    wasmtime_test:with_pool(segment_trap, #{}, fun(Mod) ->
        ?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds), wasmtime_test:instantiate(Mod))
    end).

%% A start section that works runs once, before instantiate returns.
t_start_ok(_) ->
    Inst = inst(start_ok),
    ?assertEqual({ok, <<42>>}, wasmtime:read_memory(Inst, 8, 1)),
    ok = wasmtime:destroy(Inst).

%% What was written before the trap stays: a trap is no transaction.
t_state_survives(_) ->
    Inst = inst(memory),
    {ok, [1]} = wasmtime:call(Inst, <<"count">>, []),
    ?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds),
                 wasmtime:call(Inst, <<"store">>, [1 bsl 30, 1])),
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"count">>, [])),
    ok = wasmtime:destroy(Inst).

%% Traps by the thousand, from many processes, harm nobody.
t_storm(_) ->
    N = wasmtime_test:rounds(50, 300, 5000),
    Kinds = [stack_overflow, memory_out_of_bounds, unreachable, integer_division_by_zero],
    Mod = wasmtime_test:mod(traps),
    Callers = [wasmtime_test:caller(fun() ->
        Inst = wasmtime_test:inst(Mod, #{}),
        [provoked(Inst, Kind) || _ <- lists:seq(1, N), Kind <- Kinds],
        wasmtime:destroy(Inst)
    end) || _ <- lists:seq(1, 8)],
    [receive {Pid, Result} -> ?assertEqual(ok, Result);
             {'DOWN', Monitor, _, _, Reason} when Reason =/= normal -> error(Reason)
     end || {Pid, Monitor} <- Callers].
