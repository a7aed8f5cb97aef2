%% Linear memory from the outside: read, write, size, and their bounds.
-module(memory_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/2, inst/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(SIZE, 131072).

with(Fun) -> wasmtime_test:with_inst(memory, #{}, Fun).

%% Segments are there, and everything else is zero.
t_initial(_) ->
    with(fun(Inst) ->
        ?assertEqual({ok, <<0, "image", 0>>}, wasmtime:read_memory(Inst, 15, 7)),
        ?assertEqual({ok, <<0, 0, "straddle", 0>>}, wasmtime:read_memory(Inst, 65528, 11)),
        ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"first_foreign">>, [24, 65528])),
        ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"first_foreign">>, [65544, ?SIZE]))
    end).

%% Both sides see what the other writes.
t_both_sides(_) ->
    with(fun(Inst) ->
        ok = wasmtime:write_memory(Inst, 100, <<1, 2, 3>>),
        ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"load">>, [101])),
        {ok, []} = wasmtime:call(Inst, <<"store">>, [102, 9]),
        ?assertEqual({ok, <<1, 2, 9>>}, wasmtime:read_memory(Inst, 100, 3))
    end).

%% The last byte is in, the next is out; nothing is written partly.
t_bounds(_) ->
    with(fun(Inst) ->
        Read = fun(Offset, Length) -> wasmtime:read_memory(Inst, Offset, Length) end,
        Write = fun(Offset, Data) -> wasmtime:write_memory(Inst, Offset, Data) end,
        ?assertEqual({ok, <<0>>}, Read(?SIZE - 1, 1)),
        ?assertEqual({ok, <<>>}, Read(?SIZE, 0)),
        ?assertEqual(ok, Write(?SIZE - 1, <<7>>)),
        ?assertEqual(ok, Write(?SIZE, <<>>)),
        [?assertMatch({O, L, ?WASMTIME_ERROR(memory, memory_out_of_bounds)}, {O, L, Read(O, L)})
         || {O, L} <- [{?SIZE, 1}, {?SIZE - 1, 2}, {?SIZE + 1, 0}, {0, ?SIZE + 1},
                       {1 bsl 32, 1}, {(1 bsl 64) - 1, 1}, {1, (1 bsl 64) - 1}, {1 bsl 64, 0},
                       {1 bsl 100, 1}, {0, 1 bsl 100}, {0, 1 bsl 40}]],
        [?assertMatch({O, ?WASMTIME_ERROR(memory, memory_out_of_bounds)}, {O, Write(O, D)})
         || {O, D} <- [{?SIZE - 1, <<8, 8>>}, {?SIZE, <<1>>}, {1 bsl 64, <<1>>},
                       {0, binary:copy(<<1>>, ?SIZE + 1)}, {1, binary:copy(<<1>>, 1 bsl 20)}]],
        ?assertEqual({ok, <<7>>}, Read(?SIZE - 1, 1)),
        ?assertEqual({ok, <<0>>}, Read(0, 1))
    end).

%% Both sides of the size above which another scheduler copies.
t_large(_) ->
    with(fun(Inst) ->
        {ok, [2]} = wasmtime:call(Inst, <<"grow">>, [30]),
        [begin
             Data = rand:bytes(Size),
             ok = wasmtime:write_memory(Inst, 3, Data),
             ?assertEqual({ok, Data}, wasmtime:read_memory(Inst, 3, Size))
         end || Size <- [262143, 262144, 262145, 2_000_000]]
    end).

%% Data may be any iodata.
t_iodata(_) ->
    with(fun(Inst) ->
        ok = wasmtime:write_memory(Inst, 0, ["ab", [<<"c">>, $d]]),
        ok = wasmtime:write_memory(Inst, <<"memory">>, 4, "ef"),
        ok = wasmtime:write_memory(Inst, 0, []),
        ?assertEqual({ok, <<"abcdef">>}, wasmtime:read_memory(Inst, 0, 6))
    end).

%% The size follows growth.
t_size(_) ->
    with(fun(Inst) ->
        ?assertEqual({ok, {2, ?SIZE}}, wasmtime:memory_size(Inst)),
        {ok, [2]} = wasmtime:call(Inst, <<"grow">>, [3]),
        ?assertEqual({ok, {5, 5 * 65536}}, wasmtime:memory_size(Inst)),
        ?assertEqual({ok, {5, 5 * 65536}}, wasmtime:memory_size(Inst, "memory")),
        ?assertEqual({ok, <<0>>}, wasmtime:read_memory(Inst, 5 * 65536 - 1, 1)),
        ?assertEqual({ok, [-1]},
                     wasmtime:call(Inst, <<"first_foreign">>, [?SIZE, 5 * 65536]))
    end).

%% Memories by name, and the first exported one when none is called memory.
t_names(_) ->
    Inst = inst(memories, #{}, #{proposals => #{multi_memory => true}}),
    ?assertEqual({ok, <<"one">>}, wasmtime:read_memory(Inst, 0, 3)),
    ?assertEqual({ok, <<"one">>}, wasmtime:read_memory(Inst, <<"first">>, 0, 3)),
    ?assertEqual({ok, <<"two">>}, wasmtime:read_memory(Inst, "second", 0, 3)),
    ok = wasmtime:write_memory(Inst, ["sec", <<"ond">>], 1, "x"),
    ?assertEqual({ok, <<"txo">>}, wasmtime:read_memory(Inst, "second", 0, 3)),
    ?assertEqual({ok, {1, 65536}}, wasmtime:memory_size(Inst)),
    ?assertEqual({ok, {2, ?SIZE}}, wasmtime:memory_size(Inst, "second")),
    ok = wasmtime:destroy(Inst).

%% A name that is no memory is `unknown_export'.
t_unknown_export(_) ->
    with(fun(Inst) ->
        [begin
             ?assertMatch(?WASMTIME_ERROR(memory, unknown_export),
                          wasmtime:read_memory(Inst, Name, 0, 1)),
             ?assertMatch(?WASMTIME_ERROR(memory, unknown_export),
                          wasmtime:write_memory(Inst, Name, 0, "x")),
             ?assertMatch(?WASMTIME_ERROR(memory, unknown_export),
                          wasmtime:memory_size(Inst, Name))
         end || Name <- [<<"nothing">>, <<>>, <<"load">>]]
    end),
    Inst = inst(no_memory),
    ?assertMatch(?WASMTIME_ERROR(memory, unknown_export), wasmtime:read_memory(Inst, 0, 1)),
    ?assertMatch(?WASMTIME_ERROR(memory, unknown_export), wasmtime:memory_size(Inst)),
    ok = wasmtime:destroy(Inst).

%% What is no offset, length, name or data is refused.
t_badarg(_) ->
    with(fun(Inst) ->
        [?assertMatch({Bad, ?WASMTIME_ERROR(memory, badarg)}, {Bad, F(Bad)})
         || Bad <- [-1, -(1 bsl 100), 1.0, a, <<1>>],
            F <- [fun(B) -> wasmtime:read_memory(Inst, B, 1) end,
                  fun(B) -> wasmtime:read_memory(Inst, 0, B) end,
                  fun(B) -> wasmtime:write_memory(Inst, B, "x") end]],
        [?assertMatch({Bad, ?WASMTIME_ERROR(memory, badarg)},
                      {Bad, wasmtime:write_memory(Inst, 0, Bad)})
         || Bad <- [a, 1, [a], [256], <<1:1>>, [<<1:1>>], [1 | 2]]],
        [begin
             ?assertMatch(?WASMTIME_ERROR(memory, badarg), wasmtime:read_memory(Inst, Name, 0, 1)),
             ?assertMatch(?WASMTIME_ERROR(memory, badarg), wasmtime:write_memory(Inst, Name, 0, "")),
             ?assertMatch(?WASMTIME_ERROR(memory, badarg), wasmtime:memory_size(Inst, Name))
         end || Name <- [<<"memory", 0>>, memory, 1, undefined]]
    end),
    [?assertError(badarg, F(make_ref()))
     || F <- [fun(B) -> wasmtime:read_memory(B, 0, 1) end,
              fun(B) -> wasmtime:write_memory(B, 0, "x") end,
              fun wasmtime:memory_size/1, fun wasmtime:read_output/1]].

%% While the guest runs its memory is busy, and free again after.
t_busy(_) ->
    Inst = inst(spin),
    {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    Busy = fun(Result) -> case Result of {error, #{kind := busy}} -> true; _ -> false end end,
    wasmtime_test:wait_until(fun() -> Busy(wasmtime:read_memory(Inst, 0, 1)) end),
    ?assert(Busy(wasmtime:write_memory(Inst, 0, "x"))),
    ?assert(Busy(wasmtime:memory_size(Inst))),
    ?assert(Busy(wasmtime:read_memory(Inst, 0, 1_000_000))),
    ok = wasmtime:interrupt(Inst),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
    ?assertEqual({ok, <<0>>}, wasmtime:read_memory(Inst, 0, 1)),
    ok = wasmtime:destroy(Inst).

%% A copy that was read is not a view: it stays as it was.
t_copy(_) ->
    with(fun(Inst) ->
        {ok, Before} = wasmtime:read_memory(Inst, 0, 1000),
        Copy = binary:copy(Before),
        ok = wasmtime:write_memory(Inst, 0, binary:copy(<<255>>, 1000)),
        ?assertEqual(Copy, Before)
    end).

%% Random reads and writes agree with a binary that is written alongside.
t_model(_) ->
    with(fun(Inst) ->
        {ok, Start} = wasmtime:read_memory(Inst, 0, ?SIZE),
        End = lists:foldl(fun(_, Model) -> step(Inst, Model) end, Start,
                          lists:seq(1, wasmtime_test:rounds(100, 500, 5000))),
        ?assertEqual({ok, End}, wasmtime:read_memory(Inst, 0, ?SIZE))
    end).

step(Inst, Model) ->
    Offset = rand:uniform(?SIZE) - 1,
    Length = rand:uniform(min(4096, ?SIZE - Offset)),
    Data = rand:bytes(Length),
    <<Before:Offset/binary, Old:Length/binary, After/binary>> = Model,
    ?assertEqual({ok, Old}, wasmtime:read_memory(Inst, Offset, Length)),
    ok = wasmtime:write_memory(Inst, Offset, Data),
    <<Before/binary, Data/binary, After/binary>>.

%% A shared memory is read, written and measured as others are.
t_shared(_) ->
    Inst = inst(shared, #{}, #{proposals => #{threads => true}}),
    ?assertEqual({ok, <<0, "shared", 0>>}, wasmtime:read_memory(Inst, 2, 8)),
    ok = wasmtime:write_memory(Inst, 65535, <<9>>),
    ?assertEqual({ok, [9]}, wasmtime:call(Inst, <<"load">>, [65535])),
    [?assertMatch(?WASMTIME_ERROR(memory, memory_out_of_bounds), Do())
     || Do <- [fun() -> wasmtime:read_memory(Inst, 65535, 2) end,
               fun() -> wasmtime:write_memory(Inst, 65535, <<1, 1>>) end]],
    ?assertEqual({ok, <<9>>}, wasmtime:read_memory(Inst, 65535, 1)),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"grow">>, [7])),
    ?assertEqual({ok, {8, 8 * 65536}}, wasmtime:memory_size(Inst)),
    Much = binary:copy(<<7>>, 7 * 65536),
    ok = wasmtime:write_memory(Inst, 65536, Much),
    ?assertEqual({ok, Much}, wasmtime:read_memory(Inst, 65536, 7 * 65536)),
    ok = wasmtime:write_memory(Inst, <<"other">>, 0, <<"o">>),
    ?assertEqual({ok, <<"o">>}, wasmtime:read_memory(Inst, <<"other">>, 0, 1)),
    ?assertEqual({ok, {1, 65536}}, wasmtime:memory_size(Inst, <<"other">>)),
    ok = wasmtime:destroy(Inst).

%% Without a name it is the first exported memory, whatever its sort; a running guest is `busy'.
t_shared_by_default(_) ->
    Text = {wat, "(module (import \"e\" \"h\" (func $h)) (memory (export \"m\") 1 1 shared)"
                 " (memory (export \"n\") 2) (func (export \"f\") (call $h))"
                 " (func (export \"spin\") (loop (br 0))))"},
    Looks = fun(I, []) ->
        ?assertEqual({ok, {1, 65536}}, wasmtime:memory_size(I)),
        ok = wasmtime:write_memory(I, 1, <<"host">>),
        {ok, []}
    end,
    Inst = inst(Text, #{{"e", "h"} => Looks}, #{proposals => #{threads => true}}),
    ?assertEqual({ok, []}, wasmtime:call(Inst, <<"f">>, [])),
    ?assertEqual({ok, <<"host">>}, wasmtime:read_memory(Inst, 1, 4)),
    {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, <<"spin">>, []) end),
    wasmtime_test:wait_until(fun() -> maps:get(state, wasmtime:info(Inst)) =:= running end),
    ?assertMatch(?WASMTIME_ERROR(call, busy), wasmtime:read_memory(Inst, 1, 4)),
    ok = wasmtime:interrupt(Inst),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
    ok = wasmtime:destroy(Inst).
