%% @private
%% Room for another set of compile options. An engine is freed with the last reference to a module of
%% it, and the process that wants another one is the likeliest to hold such references as garbage.
-module(wasmtime_engine).

-export([with_room/1]).

%% How often it is tried again; each time the engines that were let go have so many ms to end.
-define(TRIES, 5).
-define(PAUSE, 10).

%% @doc What Do answers; when there is no room, this process collects its garbage and tries again.
-spec with_room(fun(() -> Result)) -> Result.
with_room(Do) -> with_room(Do, ?TRIES).

with_room(Do, Tries) ->
    case Do() of
        {error, #{kind := too_many_configurations}} when Tries > 0 ->
            true = erlang:garbage_collect(),
            timer:sleep(?PAUSE),
            with_room(Do, Tries - 1);
        Result ->
            Result
    end.
