%% Rows that are compared, in turns of a few samples each, so that all meet the same noise.
-module(bench_rounds).

-export([run/3, turns/2]).
-export_type([row/0]).

-type row() :: {Key :: term(), fun((Count :: pos_integer()) -> Samples :: [term()])}.

%% @doc The samples of each row. A first turn of that many is not counted.
-spec run([row()], pos_integer(), [pos_integer()]) -> [{Key :: term(), Samples :: [term(), ...]}].
run(Rows, WarmUp, Turns) ->
    _ = turn(Rows, WarmUp),
    Taken = [turn(Rows, Count) || Count <- Turns],
    [{Key, lists:append([element(2, lists:keyfind(Key, 1, Turn)) || Turn <- Taken])}
     || {Key, _} <- Rows].

turn(Rows, Count) -> [{Key, Fun(Count)} || {Key, Fun} <- Rows].

%% @doc A number of samples in turns of at most so many.
-spec turns(pos_integer(), pos_integer()) -> [pos_integer(), ...].
turns(Samples, Turn) when Samples > Turn -> [Turn | turns(Samples - Turn, Turn)];
turns(Samples, _) -> [Samples].
