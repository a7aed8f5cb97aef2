%% One caller: every row of both sides, in turns of a few requests, so that all meet the same noise.
-module(bench_single).

-export([run/4]).

%% Requests of one row before the next has its turn.
-define(TURN, 50).
%% Requests of each row that are not counted.
-define(WARM_UP, 10).

%% @doc For each runner what its requests took; for each row of the floor program its samples.
-spec run([thread | scheduler], bench_guest:guest(), bench_floor:floor(), map()) ->
          {[{thread | scheduler, map()}], [{string(), [non_neg_integer(), ...]}]}.
run(Runners, Guest, Floor, #{requests := Requests}) ->
    Samples = bench_rounds:run(rows(Runners, Guest, Floor), ?WARM_UP,
                               bench_rounds:turns(Requests, ?TURN)),
    {[{Runner, summary(Runner, Samples)} || Runner <- Runners],
     [{Name, Nanos} || {{floor, Name}, Nanos} <- Samples]}.

rows(Runners, #{module := Mod, keep_0 := Keep0} = Guest, Floor) ->
    Ours = fun(Runner, M) ->
        Template = bench_guest:template(M, bench_guest:options(Runner, Guest)),
        fun(Count) -> [bench_guest:request(Template, N) || N <- lists:seq(1, Count)] end
    end,
    lists:append([[{{pool, Runner}, Ours(Runner, Mod)}, {{keep_0, Runner}, Ours(Runner, Keep0)}]
                  || Runner <- Runners])
        ++ [{{floor, Name}, fun(Count) -> bench_floor:run(Floor, Row, Count) end}
            || {Row, Name} <- bench_floor:rows(Floor)].

summary(Runner, Samples) ->
    {_, Pool} = lists:keyfind({pool, Runner}, 1, Samples),
    {_, Keep0} = lists:keyfind({keep_0, Runner}, 1, Samples),
    Part = fun(N) -> bench_stats:summary([element(N, Sample) || Sample <- Pool]) end,
    #{single => [{instantiate, Part(1)}, {handle, Part(2)}, {destroy, Part(3)}, {total, Part(4)}],
      keep_0 => bench_stats:summary([Total || {_, _, _, Total} <- Keep0])}.
