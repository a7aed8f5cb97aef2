%% Many calls of one instance at once: whoever awaits one gets its answer, however it ends, and a long
%% queue holds nobody up: neither a scheduler nor the calls of others.
-module(queue_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/1, inst/2, one/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% With a cost for each pair of them nothing would end in time.
many() -> wasmtime_test:rounds(20_000, 20_000, 60_000).

%% A scheduler that is held for so long is held by all of the queue at once. A machine under load takes
%% a thread away for some tens of milliseconds.
-define(HELD_MS, 300).

async(Inst, Name, Args) -> async(Inst, Name, Args, #{}).

async(Inst, Name, Args, Opts) ->
    {ok, Call} = wasmtime:call_async(Inst, Name, Args, Opts),
    Call.

%% Fun() in a process of its own, which must answer.
answers(Fun) ->
    {Pid, Monitor} = wasmtime_test:caller(Fun),
    receive
        {Pid, Result} -> demonitor(Monitor, [flush]), Result;
        {'DOWN', Monitor, process, Pid, Reason} -> error({died, Reason})
    after 60_000 ->
        At = process_info(Pid, [current_stacktrace, messages]),
        exit(Pid, kill),
        error({hangs, At})
    end.

%% ---- awaits ---------------------------------------------------------------------------------

%% A call that a host function awaits, and that ends just then by its own deadline or that of the wait,
%% answers; and so does the call around it.
t_await_ends_in_host_fun(_) ->
    [?assertEqual({Limit, Timeout, {ok, [7]}},
                  {Limit, Timeout, answers(fun() -> await_in_host_fun(Limit, Timeout) end)})
     || {Limit, Timeout} <- [{0, infinity}, {1, infinity}, {infinity, 0}, {infinity, 1}]].

await_in_host_fun(Limit, Timeout) ->
    Host = fun(Inst, [N]) -> [await_one(Inst, Limit, Timeout) || _ <- lists:seq(1, N)], {ok, [7]} end,
    wasmtime_test:with_inst(host, (one(Host))#{host_timeout => infinity}, fun(Inst) ->
        Result = wasmtime:call(Inst, <<"one">>, [wasmtime_test:rounds(3_000, 5_000, 50_000)]),
        ?assertEqual([], wasmtime_test:mailbox()),
        Result
    end).

await_one(Inst, Limit, Timeout) ->
    case wasmtime:await(Inst, async(Inst, <<"double">>, [1], #{timeout => Timeout}), Limit) of
        {ok, [2]} -> ok;
        Ended -> ?assertMatch({error, #{kind := timeout}}, Ended)
    end.

%% Whoever has the result already is told at once that there is none, also just after it came.
t_await_again(_) ->
    Inst = inst(spin),
    [?assertMatch([ok], lists:usort(answers(fun() -> at_once(8, Fun) end)))
     || Fun <- [fun() -> twice(Inst, fun wasmtime:await/2) end,
                fun() -> twice(Inst, fun received/2) end]],
    ok = wasmtime:destroy(Inst).

at_once(N, Fun) ->
    Pids = [wasmtime_test:caller(Fun) || _ <- lists:seq(1, N)],
    [receive {Pid, Result} -> Result end || {Pid, _} <- Pids].

twice(Inst, First) ->
    [begin
         Call = async(Inst, <<"ok">>, []),
         {ok, [1]} = First(Inst, Call),
         ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:await(Inst, Call, 50))
     end || _ <- lists:seq(1, wasmtime_test:rounds(10_000, 20_000, 200_000))],
    ?assertEqual([], wasmtime_test:mailbox()),
    ok.

received(Inst, Call) ->
    Ref = wasmtime:ref(Inst),
    receive {wasmtime_result, Ref, Call, Result} -> Result end.

%% ---- long queues ----------------------------------------------------------------------------

%% All of a long queue is answered when the instance is destroyed, before that returns, and no scheduler
%% is held meanwhile.
t_destroyed(_) ->
    Inst = inst(spin),
    Calls = [async(Inst, <<"spin">>, []) | queued(Inst)],
    ?assertMatch(#{queued := Queued} when Queued >= length(Calls) - 1, wasmtime:info(Inst)),
    unheld(fun() -> ok = wasmtime:destroy(Inst) end),
    ?assertMatch(#{state := destroyed, queued := 0}, wasmtime:info(Inst)),
    ?assertEqual(#{destroyed => length(Calls)}, endings(Inst, Calls)),
    ?assertEqual([], wasmtime_test:mailbox()).

queued(Inst) -> [async(Inst, <<"ok">>, []) || _ <- lists:seq(1, many())].

%% How many calls ended in which way. Their messages are here, or on their way.
endings(Inst, Calls) ->
    Ref = wasmtime:ref(Inst),
    Count = fun({ok, _}, Counts) -> count(ok, Counts);
               ({error, #{kind := Kind}}, Counts) -> count(Kind, Counts)
            end,
    lists:foldl(fun(_, Counts) ->
        receive {wasmtime_result, Ref, _, Result} -> Count(Result, Counts) end
    end, #{}, Calls).

count(Key, Counts) -> maps:update_with(Key, fun(N) -> N + 1 end, 1, Counts).

%% The end of a process ends all it asked for; the calls of others come next.
t_dead_asker(_) ->
    Inst = inst(spin),
    Self = self(),
    {Asker, Monitor} = spawn_monitor(fun() ->
        _ = [async(Inst, <<"spin">>, []) | queued(Inst)],
        Self ! queued,
        receive never -> ok end
    end),
    receive queued -> ok end,
    Mine = async(Inst, <<"ok">>, []),
    unheld(fun() ->
        exit(Asker, kill),
        receive {'DOWN', Monitor, process, Asker, killed} -> ok end,
        ?assertEqual({ok, [1]}, wasmtime:await(Inst, Mine))
    end),
    ?assertMatch(#{queued := 0}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

%% Deadlines that pass all at once answer every call; who queued behind them is next.
t_deadlines_at_once(_) ->
    Inst = inst(spin),
    Spin = async(Inst, <<"spin">>, []),
    Calls = [async(Inst, <<"ok">>, [], #{timeout => 3000}) || _ <- lists:seq(1, many())],
    Mine = async(Inst, <<"ok">>, []),
    unheld(fun() -> ?assertEqual(#{timeout => length(Calls)}, endings(Inst, Calls)) end),
    ok = wasmtime:interrupt(Inst),
    ?assertMatch(?WASMTIME_TRAP(interrupt), wasmtime:await(Inst, Spin)),
    ?assertEqual({ok, [1]}, wasmtime:await(Inst, Mine)),
    ok = wasmtime:destroy(Inst).

%% What was asked for while the instance was being made ends with it when it could not be made.
t_never_made(_) ->
    Self = self(),
    Fun = fun(Inst, [5]) -> Self ! {inst, Inst, queued(Inst)}, {error, <<"no">>} end,
    unheld(fun() ->
        ?assertMatch(?WASMTIME_ERROR(host, host_error),
                     not_made(start_host, Fun))
    end),
    {Inst, Calls} = receive {inst, Made, Queued} -> {Made, Queued} end,
    ?assertEqual(#{destroyed => many()}, endings(Inst, Calls)),
    ?assertMatch(#{state := destroyed, queued := 0}, wasmtime:info(Inst)),
    ok = wasmtime:destroy(Inst).

not_made(Guest, Fun) ->
    wasmtime_test:instantiate(wasmtime_test:mod(Guest), #{imports => #{{"env", "one"} => Fun},
                                                          host_timeout => infinity}).

%% Runs Fun() while somebody watches how long schedulers are held.
unheld(Fun) ->
    Watcher = spawn_link(fun() -> watch([]) end),
    Old = erlang:system_monitor(Watcher, [{long_schedule, ?HELD_MS}]),
    %% Who holds a scheduler is found out when it lets go.
    try Fun() after timer:sleep(50), erlang:system_monitor(Old) end,
    Watcher ! {held, self()},
    receive {held, Held} -> ?assertEqual([], Held) end.

watch(Held) ->
    receive
        {monitor, Pid, long_schedule, Info} -> watch([{Pid, Info} | Held]);
        {held, To} -> To ! {held, Held}
    end.
