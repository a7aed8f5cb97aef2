%% Whether anything held a scheduler for too long: `erlang:system_monitor' with `long_schedule'.
%% Rule: who is told is a process of its own, so that no mailbox of a benchmark fills.
-module(bench_watch).

-export([during/1, threshold_ms/0]).

-define(THRESHOLD_MS, 10).

-spec threshold_ms() -> pos_integer().
threshold_ms() -> ?THRESHOLD_MS.

%% @doc What a function answers, and the long schedules meanwhile: `timeout' in milliseconds and
%% where the process was.
-spec during(fun(() -> Result)) -> {Result, [[{atom(), term()}]]}.
during(Fun) ->
    {Watcher, Monitor} = spawn_monitor(fun() -> collect([]) end),
    Old = erlang:system_monitor(Watcher, [{long_schedule, ?THRESHOLD_MS}]),
    Result = try Fun() after erlang:system_monitor(Old) end,
    Watcher ! {stop, self()},
    receive
        {Watcher, Events} -> true = demonitor(Monitor, [flush]), {Result, Events};
        {'DOWN', Monitor, _, _, Reason} -> bench_guest:fail("the watcher ended: ~tp", [Reason])
    end.

collect(Events) ->
    receive
        {monitor, _, long_schedule, Info} -> collect([Info | Events]);
        {stop, Pid} -> Pid ! {self(), lists:reverse(Events)}
    end.
