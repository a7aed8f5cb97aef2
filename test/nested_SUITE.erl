%% A host function that uses the instance which waits for it: calls, memory, three levels deep; a trap, a
%% timeout, an exit or the end of everything inside. The same where another process serves.
-module(nested_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [one/1]).

all() -> [{group, Group} || Group <- [thread, scheduler, thread_host, scheduler_host]].

groups() -> [{Group, [], wasmtime_test:cases(?MODULE)} || {group, Group} <- all()].

init_per_group(Group, Config) ->
    {Runner, Hosted} = case Group of
        thread_host -> {thread, true};
        scheduler_host -> {scheduler, true};
        Plain -> {Plain, false}
    end,
    wasmtime_test:use(Runner),
    [{hosted, Hosted} | Config].

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% An instance of host.wat whose `one' is Fun, served by the caller or by a host.
with(Config, Fun, Test) -> with(Config, host, Fun, Test).

with(Config, Guest, Fun, Test) ->
    Opts = (one(Fun))#{host_timeout => infinity},
    case proplists:get_value(hosted, Config) of
        false -> wasmtime_test:with_inst(Guest, Opts, Test);
        true ->
            Host = host_process_SUITE:host(),
            wasmtime_test:with_inst(Guest, Opts#{host => Host}, fun(Inst) ->
                ok = host_process_SUITE:tell(Host, Inst),
                Test(Inst)
            end),
            exit(Host, kill)
    end,
    ?assertEqual([], wasmtime_test:mailbox()).

call(Inst, X) -> wasmtime:call(Inst, <<"one">>, [X]).

call(Inst, X, Ms) -> wasmtime:call(Inst, <<"one">>, [X], #{timeout => Ms}).

%% Calls of an instance and of its memory, at every level.
t_levels(Config) ->
    Fun = fun(_, [0]) -> {ok, [0]};
             (Inst, [N]) ->
                 {ok, [Twice]} = wasmtime:call(Inst, <<"double">>, [N]),
                 ok = wasmtime:write_memory(Inst, N, <<Twice>>),
                 {ok, [Below]} = call(Inst, N - 1),
                 {ok, <<Twice>>} = wasmtime:read_memory(Inst, N, 1),
                 {ok, {1, 65536}} = wasmtime:memory_size(Inst),
                 {ok, [Below + Twice]}
          end,
    with(Config, Fun, fun(Inst) ->
        [?assertEqual({ok, [N * (N + 1)]}, call(Inst, N)) || N <- [0, 1, 2, 3, 20]],
        ?assertEqual({ok, <<2, 4, 6>>}, wasmtime:read_memory(Inst, 1, 3))
    end).

%% Globals, tables, references and their functions, at three levels; what the host put there stays.
t_everything(Config) ->
    Fun = fun(_, [0]) -> {ok, [0]};
             (Inst, [N]) ->
                 {ok, Depth} = wasmtime:global_get(Inst, <<"depth">>),
                 ok = wasmtime:global_set(Inst, <<"depth">>, Depth + 1),
                 {ok, Extern} = wasmtime:externref(Inst, {level, N}),
                 {ok, [Same]} = wasmtime:call(Inst, <<"same">>, [Extern]),
                 {ok, {level, N}} = wasmtime:externref_data(Same),
                 ok = wasmtime:global_set(Inst, <<"kept">>, Same),
                 {ok, Size} = wasmtime:table_size(Inst, <<"table">>),
                 {ok, Double} = wasmtime:funcref(Inst, <<"double">>),
                 {ok, Size} = wasmtime:table_grow(Inst, <<"table">>, 1, Double),
                 {ok, Func} = wasmtime:table_get(Inst, <<"table">>, Size),
                 {ok, [Twice]} = wasmtime:call_ref(Inst, Func, [N]),
                 {ok, [Below]} = call(Inst, N - 1),
                 ok = wasmtime:table_set(Inst, <<"table">>, 0, Func),
                 {ok, [Trap]} = wasmtime:call(Inst, <<"trap">>, []),
                 ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime:call_ref(Inst, Trap, [N])),
                 {ok, [Below + Twice]}
          end,
    with(Config, nested, Fun, fun(Inst) ->
        ?assertEqual({ok, [12]}, call(Inst, 3)),
        ?assertEqual({ok, 3}, wasmtime:global_get(Inst, <<"depth">>)),
        ?assertEqual({ok, 4}, wasmtime:table_size(Inst, <<"table">>)),
        {ok, Kept} = wasmtime:global_get(Inst, <<"kept">>),
        ?assertEqual({ok, {level, 1}}, wasmtime:externref_data(Kept)),
        {ok, Func} = wasmtime:table_get(Inst, <<"table">>, 0),
        ?assertEqual({ok, [10]}, wasmtime:call_ref(Inst, Func, [5])),
        ok = wasmtime:gc(Inst)
    end).

%% Nesting ends where it would need too many stacks, with an error at that level alone.
t_too_deep(Config) ->
    Fun = fun(Inst, [N]) ->
              case call(Inst, N + 1) of
                  {ok, [Deepest]} -> {ok, [Deepest]};
                  {error, #{class := trap, kind := stack_overflow}} -> {ok, [N]}
              end
          end,
    with(Config, Fun, fun(Inst) ->
        ?assertEqual({ok, [65]}, call(Inst, 1)),
        ?assertEqual({ok, [65]}, call(Inst, 1))
    end).

%% A trap, a host error, a wrong argument and an unknown name inside are errors for the host function, which
%% goes on.
t_failures_inside(Config) ->
    Fun = fun(_, [0]) -> error(inner);
             (Inst, [1]) ->
                 ?assertMatch(?WASMTIME_ERROR(host, host_error), call(Inst, 0)),
                 ?assertMatch(?WASMTIME_ERROR(call, badarity), wasmtime:call(Inst, <<"one">>, [])),
                 ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:call(Inst, <<"one">>, [a])),
                 ?assertMatch(?WASMTIME_ERROR(call, unknown_export), wasmtime:call(Inst, <<"no">>, [])),
                 ?assertMatch(?WASMTIME_ERROR(memory, memory_out_of_bounds),
                              wasmtime:read_memory(Inst, 65536, 1)),
                 {ok, [77]};
             (Inst, [2]) -> ?assertEqual({ok, [77]}, call(Inst, 1)), call(Inst, 0)
          end,
    with(Config, Fun, fun(Inst) ->
        ?assertEqual({ok, [77]}, call(Inst, 1)),
        ?assertMatch(?WASMTIME_ERROR(host, host_error), call(Inst, 2)),
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2]))
    end).

%% The time of an inner call ends it and no other; the time of the outer one ends all inside of it.
t_timeouts(Config) ->
    Fun = fun(_, [0]) -> timer:sleep(60), {ok, [0]};
             (Inst, [1]) -> ?assertMatch(?WASMTIME_TRAP(timeout), call(Inst, 0, 10)), {ok, [1]};
             (Inst, [2]) -> call(Inst, 1);
             (Inst, [3]) -> call(Inst, 0);
             (Inst, [4]) -> ?assertMatch({error, _}, call(Inst, 3, 10)), {ok, [4]}
          end,
    with(Config, Fun, fun(Inst) ->
        ?assertEqual({ok, [1]}, call(Inst, 1)),
        ?assertEqual({ok, [1]}, call(Inst, 2, 10_000)),
        ?assertMatch(?WASMTIME_TRAP(timeout), call(Inst, 0, 10)),
        ?assertMatch(?WASMTIME_TRAP(timeout), call(Inst, 3, 10)),
        ?assertEqual({ok, [4]}, call(Inst, 4)),
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2]))
    end).

%% A guest that computes for ever inside is ended by its own time, and the outer call goes on.
t_spin_inside(Config) ->
    Host = host_process_SUITE:host(),
    Own = #{{"env", "tick"} => fun(Inst, []) ->
        ?assertMatch(?WASMTIME_TRAP(timeout),
                     wasmtime:call(Inst, <<"spin">>, [], #{timeout => 20})),
        {ok, [1]} = wasmtime:call(Inst, <<"ok">>, []),
        {ok, []}
    end},
    Opts = case proplists:get_value(hosted, Config) of true -> Own#{host => Host}; false -> Own end,
    wasmtime_test:with_inst(loop, Opts, fun(Inst) ->
        ok = host_process_SUITE:tell(Host, Inst),
        ?assertEqual({ok, []}, wasmtime:call(Inst, <<"tick_once">>, [])),
        ?assertMatch(?WASMTIME_TRAP(timeout),
                     wasmtime:call(Inst, <<"tick">>, [], #{timeout => 100}))
    end),
    exit(Host, kill).

%% Destroyed from inside, every level ends as destroyed.
t_destroy_inside(Config) ->
    Self = self(),
    Fun = fun(Inst, [0]) -> ok = wasmtime:destroy(Inst), {ok, [0]};
             (Inst, [N]) -> Self ! {N, call(Inst, N - 1)}, {ok, [N]}
          end,
    Test = fun(Inst) ->
        ?assertMatch(?WASMTIME_ERROR(call, destroyed), call(Inst, 2)),
        [receive {N, Result} -> ?assertMatch({N, {error, _}}, {N, Result}) end || N <- [1, 2]],
        ?assertMatch(?WASMTIME_ERROR(call, destroyed), call(Inst, 0))
    end,
    with(Config, Fun, Test).

%% An interrupt ends all levels.
t_interrupt_inside(Config) ->
    Fun = fun(Inst, [0]) -> ?assertEqual(ok, wasmtime:interrupt(Inst)), {ok, [0]};
             (Inst, [N]) -> ?assertMatch({error, _}, call(Inst, N - 1)), {ok, [N]}
          end,
    with(Config, Fun, fun(Inst) ->
        ?assertMatch(?WASMTIME_TRAP(interrupt), call(Inst, 2)),
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2]))
    end).

%% A process that is not asked to serve waits for its turn, however deep the nesting is.
t_others_wait(Config) ->
    Self = self(),
    Fun = fun(Inst, [0]) ->
                 {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, <<"double">>, [4]) end),
                 wasmtime_test:wait_until(fun() -> maps:get(queued, wasmtime:info(Inst)) =:= 1 end),
                 Self ! {other, Pid},
                 {ok, [0]};
             (Inst, [N]) -> call(Inst, N - 1)
          end,
    Opts = case proplists:get_value(hosted, Config) of
        true -> #{host => host_process_SUITE:host()};
        false -> #{}
    end,
    Inst = wasmtime_test:inst(host, maps:merge(one(Fun), Opts)),
    _ = [host_process_SUITE:tell(Host, Inst) || {host, Host} <- maps:to_list(Opts)],
    {Caller, _} = wasmtime_test:caller(fun() -> call(Inst, 2) end),
    receive {Caller, Result} -> ?assertEqual({ok, [0]}, Result) end,
    Other = receive {other, Pid} -> Pid end,
    %% The other's result goes to who made it.
    wasmtime_test:wait_until(fun() -> not is_process_alive(Other) end),
    ?assertMatch(#{calls := 4, queued := 0, state := idle}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).
