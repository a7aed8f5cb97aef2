%% @private
%% Tells the user's telemetry what happens in a pool.
%% Rule: whatever the callback does, the request does not notice.
-module(wasmtime_pool_event).

-include("wasmtime_pool.hrl").

-export([callback/1, emit/4]).

%% @doc The callback to use: a given one, none, or `telemetry:execute/3' where that is there.
-spec callback(auto | none | fun(([atom()], map(), map()) -> term())) ->
          none | fun(([atom()], map(), map()) -> term()).
callback(auto) ->
    %% Not written as a call: the application is no dependency.
    Telemetry = telemetry,
    case code:ensure_loaded(Telemetry) of
        {module, _} ->
            case erlang:function_exported(Telemetry, execute, 3) of
                true -> fun Telemetry:execute/3;
                false -> none
            end;
        {error, _} ->
            none
    end;
callback(Callback) ->
    Callback.

%% @doc Calls it with `[wasmtime, pool | Name]'. The pool's name is among the metadata.
-spec emit(#pool{}, [atom()], map(), map()) -> ok.
emit(#pool{telemetry = none}, _, _, _) ->
    ok;
emit(#pool{telemetry = Callback, name = Pool} = P, Name, Measurements, Metadata) ->
    Event = [wasmtime, pool | Name],
    try Callback(Event, Measurements, Metadata#{pool => Pool}) of
        _ -> ok
    catch
        Class:Reason:Stack -> failed(P, Event, {Class, Reason, Stack})
    end.

%% One that fails fails often: it is said once.
failed(#pool{words = Words, name = Pool}, Event, Why) ->
    case wasmtime_pool_ticket:first_time(Words) of
        true ->
            Text = wasmtime_error:text("telemetry of wasmtime pool ~0tp failed at ~0tp, and is not "
                                       "reported again: ~0tp", [Pool, Event, Why]),
            logger:warning("~ts", [Text]);
        false -> ok
    end.
