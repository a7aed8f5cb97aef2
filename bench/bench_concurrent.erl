%% Many callers at once: each a process that serves one request after the other. Every number of
%% callers has its turns, so that all meet the same noise.
-module(bench_concurrent).

-export([run/4, together/2]).

-import(bench_stats, [now_ns/0, median/1]).

%% Requests of each caller that are not counted: they find their slots.
-define(WARM_UP, 3).

%% Milliseconds of one row before the next has its turn, and of the turns that are not counted.
-define(TURN, 250).
-define(FIRST, 50).

%% @doc For each number of callers: requests per second of all together, the median of the turns, and
%% what one request took.
-spec run(thread | scheduler, bench_guest:guest(), [pos_integer()], pos_integer()) -> [map()].
run(Runner, #{module := Mod} = Guest, Numbers, Seconds) ->
    Template = bench_guest:template(Mod, bench_guest:options(Runner, Guest)),
    Request = fun(N) -> element(4, bench_guest:request(Template, N)) end,
    Rows = [{N, fun(Ms) -> [turn(N, Request, Ms)] end} || N <- Numbers],
    [row(N, Turns) || {N, Turns} <- bench_rounds:run(Rows, ?FIRST,
                                                     bench_rounds:turns(Seconds * 1000, ?TURN))].

row(Callers, Turns) ->
    {PerS, Samples} = lists:unzip(Turns),
    #{p50 := P50, p99 := P99} = bench_stats:summary(lists:append(Samples)),
    #{callers => Callers, requests_per_s => median(PerS), p50 => P50, p99 => P99}.

turn(Callers, Request, Ms) ->
    Caller = fun(Go) ->
        _ = [Request(N) || N <- lists:seq(1, ?WARM_UP)],
        Start = Go(),
        Samples = until(Start + Ms * 1_000_000, Request, 1, []),
        {Start, now_ns(), Samples}
    end,
    Ended = together(Callers, Caller),
    Samples = lists:append([S || {_, _, S} <- Ended]),
    [{Start, _, _} | _] = Ended,
    Nanos = lists:max([End || {_, End, _} <- Ended]) - Start,
    {length(Samples) * 1.0e9 / Nanos, Samples}.

until(End, Request, N, Samples) ->
    Next = [Request(N) | Samples],
    case now_ns() < End of
        true -> until(End, Request, N + 1, Next);
        false -> Next
    end.

%% @doc Runs a function in that many processes. What it is given waits until all are that far and
%% answers the common start. A process that fails ends the run.
-spec together(pos_integer(), fun((fun(() -> integer())) -> Result)) -> [Result].
together(Count, Fun) ->
    Parent = self(),
    Spawn = fun(_) -> spawn_monitor(fun() -> exit({done, caught(Fun, Parent)}) end) end,
    Callers = lists:map(Spawn, lists:seq(1, Count)),
    Ready = fun({Pid, Monitor}) ->
        receive
            {ready, Pid} -> ok;
            {'DOWN', Monitor, _, _, Reason} -> ended(Reason)
        end
    end,
    lists:foreach(Ready, Callers),
    Start = now_ns(),
    lists:foreach(fun({Pid, _}) -> Pid ! {go, Start} end, Callers),
    [receive {'DOWN', Monitor, _, _, Reason} -> ended(Reason) end || {_, Monitor} <- Callers].

caught(Fun, Parent) ->
    Go = fun() ->
        Parent ! {ready, self()},
        receive {go, Start} -> Start end
    end,
    try {ok, Fun(Go)}
    catch throw:{failed, Message} -> {failed, Message}
    end.

ended({done, {ok, Result}}) -> Result;
ended({done, {failed, _} = Failed}) -> throw(Failed);
ended(Reason) -> bench_guest:fail("a caller ended: ~tp", [Reason]).
